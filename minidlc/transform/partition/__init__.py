"""Parts of a graph for another machine: what it takes, how ops become what it takes, regions.

Reading order: backend, legalise, partition; minidlc/npu is such a machine. Treated in course
chapter 02_frontend_opt.
"""
