"""`python -m minidlc` is the `minidlc` command.

    python -m minidlc tour                          # the same as: minidlc tour

Treated in course chapter 01_graph_ir.
"""

from minidlc.cli import main

if __name__ == "__main__":
    main()
