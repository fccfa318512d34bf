"""What is wrong with the data that a user gave."""


class DataError(ValueError):
    """Data that cannot be used as asked; the message is for the user and says what to do."""
