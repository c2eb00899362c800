"""The autograder of the course. `python -m grader --help`."""
