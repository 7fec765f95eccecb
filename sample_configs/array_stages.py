"""Hand-written stages on arrays and tensors, three of them with a usual mistake in it."""

import cv2
import numpy as np
import torch


class Square:
    """Resize an H,W,C image to `size` x `size`."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        return cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_AREA)


class ChannelsFirst:
    def __call__(self, image):
        return np.ascontiguousarray(image.transpose(2, 0, 1))


class Turn:
    """Turn a picture that was taken sideways, by a quarter to the left."""

    def __call__(self, image):
        return np.rot90(image).copy()


class AsTensor:
    """uint8 of 0 to 255 to float32 of 0 to 1; the axes stay as they are."""

    def __call__(self, image):
        return torch.from_numpy(image).float() / 255


class ForPlotting:
    """Bring a tensor to the order of axes that matplotlib draws."""

    def __call__(self, image):
        return image.permute(1, 2, 0)


class Reshaped:
    """Give an H,W,C tensor the shape C,H,W."""

    def __call__(self, image):
        height, width, channels = image.shape
        return image.reshape(channels, height, width)
