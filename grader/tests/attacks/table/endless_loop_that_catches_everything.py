# task: 9.1
# deserves: 0
# status: timeout
def double(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
