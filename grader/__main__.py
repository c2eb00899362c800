"""`python -m grader`: see grader/cli.py."""

if __name__ == "__main__":  # processes of `multiprocessing` read this file, and need no command
    from grader.cli import main

    main()
