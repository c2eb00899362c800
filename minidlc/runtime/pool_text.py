"""The LLVM text of the thread pool (pool.py says what it does).

State, all in globals: the generation, which counts jobs; the job (body, context, n, range size,
workers that may take part); the next range; `members`, the number of workers that are at work, with
a high bit while no job is open; the number asleep.

Why it is right: a worker takes part only by adding itself to `members` while the job is open, and
the caller returns only when the job is closed and has no members; so the job does not change under
a worker, and one that comes late, because the machine is busy, is not waited for. One that saw an
old generation may join the newest job at once, it looks at that job only. A worker reads the
generation *before* it is counted, so a job that counts it comes with one it has not seen.
Sequentially consistent accesses to the generation and to the number of sleepers mean that either
the caller sees the sleeper or the sleeper sees the new generation.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import platform
import sys

_CLOSED = 1 << 30  # of `members`

_POSIX = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
define internal void @init() {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @cond, ptr null)
  ret void
}
define internal void @lock() {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  ret void
}
define internal void @unlock() {
  %a = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wait() {
  %a = call i32 @pthread_cond_wait(ptr @cond, ptr @mutex)
  ret void
}
define internal void @wake() {
  %a = call i32 @pthread_cond_broadcast(ptr @cond)
  ret void
}
define internal void @yield() {
  %a = call i32 @sched_yield()
  ret void
}
"""

_WINDOWS = """
declare void @AcquireSRWLockExclusive(ptr)
declare void @ReleaseSRWLockExclusive(ptr)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)
declare void @WakeAllConditionVariable(ptr)
declare i32 @SwitchToThread()
define internal void @init() {
  store ptr null, ptr @mutex
  store ptr null, ptr @cond
  ret void
}
define internal void @lock() {
  call void @AcquireSRWLockExclusive(ptr @mutex)
  ret void
}
define internal void @unlock() {
  call void @ReleaseSRWLockExclusive(ptr @mutex)
  ret void
}
define internal void @wait() {
  %a = call i32 @SleepConditionVariableSRW(ptr @cond, ptr @mutex, i32 -1, i32 0)
  ret void
}
define internal void @wake() {
  call void @WakeAllConditionVariable(ptr @cond)
  ret void
}
define internal void @yield() {
  %a = call i32 @SwitchToThread()
  ret void
}
"""

_STATE = """
@mutex = internal global [128 x i8] zeroinitializer, align 64
@cond = internal global [128 x i8] zeroinitializer, align 64
@generation = internal global i64 0, align 64
@next = internal global i64 0, align 64
@members = internal global i32 CLOSED, align 64
@workers = internal global i32 0, align 8
@busy = internal global i32 0, align 64
@count = internal global i32 0, align 64
@sleepers = internal global i32 0, align 4
@stopped = internal global i32 0, align 4
@spins = internal global i32 0, align 4
@body = internal global ptr null, align 64
@context = internal global ptr null, align 8
@n = internal global i64 0, align 8
@range = internal global i64 1, align 8
"""

_RUN = """
define internal void @run(i32 %worker) {
entry:
  %body = load ptr, ptr @body
  %context = load ptr, ptr @context
  %n = load i64, ptr @n
  %range = load i64, ptr @range
  br label %take
take:
  %low = atomicrmw add ptr @next, i64 %range seq_cst
  %some = icmp slt i64 %low, %n
  br i1 %some, label %work, label %done
work:
  %end = add i64 %low, %range
  %high = call i64 @llvm.smin.i64(i64 %end, i64 %n)
  call void %body(ptr %context, i64 %low, i64 %high, i32 %worker)
  br label %take
done:
  ret void
}
"""

_PARALLEL_FOR = """
define void @minidlc_parallel_for(ptr %body, ptr %context, i64 %n, i32 %threads) {
entry:
  %took = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %took, 1
  br i1 %mine, label %size, label %alone
alone:
  call void %body(ptr %context, i64 0, i64 %n, i32 0)
  ret void
size:
  %there = load atomic i32, ptr @count seq_cst, align 4
  %wanted = sub i32 %threads, 1
  %fitting = call i32 @llvm.smin.i32(i32 %there, i32 %wanted)
  %n32 = trunc i64 %n to i32
  %others = sub i32 %n32, 1
  %large = icmp sgt i64 %n, 1000000
  %useful = select i1 %large, i32 65535, i32 %others
  %workers = call i32 @llvm.smin.i32(i32 %fitting, i32 %useful)
  %any = icmp sgt i32 %workers, 0
  br i1 %any, label %publish, label %single
single:
  call void %body(ptr %context, i64 0, i64 %n, i32 0)
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
publish:
  %all = add i32 %workers, 1
  %all64 = zext i32 %all to i64
  %parts = mul i64 %all64, 4
  %share = sdiv i64 %n, %parts
  %range = call i64 @llvm.smax.i64(i64 %share, i64 1)
  store ptr %body, ptr @body
  store ptr %context, ptr @context
  store i64 %n, ptr @n
  store i64 %range, ptr @range
  store i32 %workers, ptr @workers
  store atomic i64 0, ptr @next seq_cst, align 8
  store atomic i32 0, ptr @members seq_cst, align 4
  %old = atomicrmw add ptr @generation, i64 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %must_wake = icmp sgt i32 %asleep, 0
  br i1 %must_wake, label %wake, label %work
wake:
  call void @lock()
  call void @wake()
  call void @unlock()
  br label %work
work:
  call void @run(i32 0)
  %closing = atomicrmw or ptr @members, i32 CLOSED seq_cst
  %spins = load i32, ptr @spins
  br label %check
check:
  %i = phi i32 [ 0, %work ], [ %i.next, %spin ], [ %i, %give ]
  %left = load atomic i32, ptr @members seq_cst, align 4
  %finished = icmp eq i32 %left, CLOSED
  br i1 %finished, label %out, label %again
again:
  %i.next = add i32 %i, 1
  %hot = icmp slt i32 %i, %spins
  br i1 %hot, label %spin, label %give
spin:
  PAUSE
  br label %check
give:
  call void @yield()
  br label %check
out:
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}
"""

_WORKER = """
define void @minidlc_pool_worker() {
entry:
  %first = load atomic i64, ptr @generation seq_cst, align 8
  %before = atomicrmw add ptr @count, i32 1 seq_cst
  %index = add i32 %before, 1
  br label %idle
idle:
  %seen = phi i64 [ %first, %entry ], [ %word, %skip ]
  %spins = load i32, ptr @spins
  br label %check
check:
  %i = phi i32 [ 0, %idle ], [ %i.next, %spin ], [ 0, %woken ]
  %word = load atomic i64, ptr @generation seq_cst, align 8
  %new = icmp ne i64 %word, %seen
  br i1 %new, label %job, label %again
again:
  %i.next = add i32 %i, 1
  %hot = icmp slt i32 %i, %spins
  br i1 %hot, label %spin, label %sleep
spin:
  PAUSE
  br label %check
sleep:
  call void @lock()
  %more = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %still
still:
  %now = load atomic i64, ptr @generation seq_cst, align 8
  %same = icmp eq i64 %now, %seen
  br i1 %same, label %nap, label %woken
nap:
  call void @wait()
  br label %still
woken:
  %less = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  call void @unlock()
  br label %check
job:
  %end = load atomic i32, ptr @stopped seq_cst, align 4
  %leave = icmp ne i32 %end, 0
  br i1 %leave, label %out, label %mine
mine:
  %there = load atomic i32, ptr @members seq_cst, align 4
  %closed = icmp sge i32 %there, CLOSED
  br i1 %closed, label %skip, label %join
join:
  %with.me = add i32 %there, 1
  %try = cmpxchg ptr @members, i32 %there, i32 %with.me seq_cst seq_cst
  %joined = extractvalue { i32, i1 } %try, 1
  br i1 %joined, label %member, label %mine
member:
  %workers = load i32, ptr @workers
  %takes_part = icmp sle i32 %index, %workers
  br i1 %takes_part, label %work, label %quit
work:
  call void @run(i32 %index)
  br label %quit
quit:
  %others = atomicrmw sub ptr @members, i32 1 seq_cst
  br label %skip
skip:
  br label %idle
out:
  ret void
}
"""

_CONTROL = """
define i32 @minidlc_pool_count() {
  %n = load atomic i32, ptr @count seq_cst, align 4
  ret i32 %n
}
define void @minidlc_pool_reset(i32 %spins) {
  call void @init()
  store i32 %spins, ptr @spins
  store atomic i32 0, ptr @count seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 CLOSED, ptr @members seq_cst, align 4
  store atomic i32 0, ptr @stopped seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}
define void @minidlc_pool_stop() {
  store atomic i32 1, ptr @stopped seq_cst, align 4
  store atomic i32 0, ptr @count seq_cst, align 4
  %old = atomicrmw add ptr @generation, i64 1 seq_cst
  call void @lock()
  call void @wake()
  call void @unlock()
  ret void
}
"""


def pool_text() -> str:
    """The pool for this operating system and processor."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    pause = "call void @llvm.aarch64.hint(i32 1)" if arm else "call void @llvm.x86.sse2.pause()"
    system = _WINDOWS if sys.platform == "win32" else _POSIX
    loops = (_RUN + _PARALLEL_FOR + _WORKER).replace("PAUSE", pause)
    return (_STATE + system + loops + _CONTROL).replace("CLOSED", str(_CLOSED))
