# task: 9.1
# deserves: 0
# status: error
def double(x):
    return double(x)
