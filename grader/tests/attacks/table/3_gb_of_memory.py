# task: 9.1
# deserves: 0
# status: oom
def double(x):
    return [bytearray(64 << 20) for _ in range(50)] and x
