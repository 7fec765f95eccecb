"""A hand-written random crop with the usual mistake in it."""

import random


class RandomWindow:
    """Cut a window of `size` x `size` whose corner lies anywhere in an H,W,C image."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        height, width = image.shape[:2]
        top = random.randrange(height)
        left = random.randrange(width)
        return image[top : top + self.size, left : left + self.size]
