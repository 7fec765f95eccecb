"""Two transforms of arrays that cost more memory than they show."""

import numpy as np


class Mirror:
    """Turn every second image round, and remember each for a picture of the augmentation."""

    def __init__(self):
        self.shown = []

    def __call__(self, image):
        if len(self.shown) % 2:
            image = np.ascontiguousarray(image[:, ::-1])
        self.shown.append(image)
        return image


class MotionBlur:
    """Average an H,W,C image over `length` positions of a camera that moves to the right."""

    def __init__(self, length):
        self.length = length

    def __call__(self, image):
        exposures = np.stack([np.roll(image, shift, axis=1) for shift in range(self.length)])
        return exposures.astype(np.float64).mean(axis=0).astype(np.uint8)
