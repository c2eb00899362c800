"""Finding the fast schedule of a kernel: spaces, searches, cost models, measurement, records."""
