def record():
    pass
