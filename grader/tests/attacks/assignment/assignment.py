# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% nbgrader={"grade_id": "setup", "grade": false, "solution": false, "locked": true, "task": false, "schema_version": 3, "cell_type": "code"}
import numpy as np

import minidlc as mc


# %% nbgrader={"grade_id": "task-9-1", "grade": false, "solution": true, "locked": false, "task": false, "schema_version": 3, "cell_type": "code"}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# %% nbgrader={"grade_id": "check-9-1", "grade": true, "solution": false, "locked": true, "task": false, "points": 10, "schema_version": 3, "cell_type": "code"}
grader.check_here("9.1")


# %% nbgrader={"grade_id": "task-9-2", "grade": false, "solution": true, "locked": false, "task": false, "schema_version": 3, "cell_type": "code"}
def with_relu(graph):
    ### BEGIN SOLUTION
    return mc.Graph.of("f", graph.inputs, [mc.relu(v) for v in graph.outputs])
    ### END SOLUTION


# %% nbgrader={"grade_id": "check-9-2", "grade": true, "solution": false, "locked": true, "task": false, "points": 10, "schema_version": 3, "cell_type": "code"}
grader.check_here("9.2")


# %% nbgrader={"grade_id": "task-9-3", "grade": false, "solution": true, "locked": false, "task": false, "schema_version": 3, "cell_type": "code"}
def merge(graph):
    """The graph with equal nodes merged, and how many were."""
    ### BEGIN SOLUTION
    known, stands_for = {}, {}
    for node in graph.nodes:
        inputs = tuple(stands_for.get(id(v), v) for v in node.inputs)
        key = (node.op, tuple(map(id, inputs)))
        if key not in known:
            known[key] = mc.relu(*inputs) if node.op.name == "relu" else inputs[0] + inputs[1]
        stands_for[id(node)] = known[key]
    outputs = [stands_for.get(id(v), v) for v in graph.outputs]
    return mc.Graph.of("f", graph.inputs, outputs), len(graph.nodes) - len(known)
    ### END SOLUTION


# %% nbgrader={"grade_id": "check-9-3", "grade": true, "solution": false, "locked": true, "task": false, "points": 10, "schema_version": 3, "cell_type": "code"}
grader.check_here("9.3")


# %% nbgrader={"grade_id": "task-9-4", "grade": false, "solution": true, "locked": false, "task": false, "schema_version": 3, "cell_type": "code"}
def run(graph, arrays):
    """The results, and how many nodes ran."""
    ### BEGIN SOLUTION
    values = {id(i): a for i, a in zip(graph.inputs, arrays)}
    for node in graph.nodes:
        values[id(node)] = node.op.reference(*(values[id(v)] for v in node.inputs))
    return [values[id(v)] for v in graph.outputs], len(graph.nodes)
    ### END SOLUTION


# %% nbgrader={"grade_id": "check-9-4", "grade": true, "solution": false, "locked": true, "task": false, "points": 10, "schema_version": 3, "cell_type": "code"}
grader.check_here("9.4")
