"""Where student code runs: a fork server, one process per task, the kernel's limits, isolation.

    with ForkServer(overlay, best()) as server:
        worker = server.spawn(Limits(seconds=5))
        reply = worker.request({"message": {"do": "start", …}}, answer)
        usage = worker.close()

Reading order: limits, sandboxed, forkserver (parent); server, keeper, worker, room, locks, kernel
(the other side). docs/isolation.md says what each level stops. Not for Windows, which cannot fork.
"""

from grader.sandbox.forkserver import ForkServer, best, why_not
from grader.sandbox.limits import Isolation, Limits, Usage
from grader.sandbox.sandboxed import Sandboxed

__all__ = ["ForkServer", "Isolation", "Limits", "Sandboxed", "Usage", "best", "why_not"]
