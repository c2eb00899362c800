"""`python -m grader`: see grader/cli.py."""

from grader.cli import main

if __name__ == "__main__":
    main()
