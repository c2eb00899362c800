# task: 9.1
# deserves: 0
# status: output_limit
def double(x):
    for _ in range(500):
        print("x" * 1_000_000)
    return x
