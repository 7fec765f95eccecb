"""A folder in which one download broke off, and a dataset that means to skip it."""

import cv2
from shape_folder import CLASSES, ShapeFolder, draw_folder, drawn


def draw_broken_folder(folder):
    draw_folder(folder)
    (folder / "square" / "007.png").write_bytes(b"")


class SkippingFolder(ShapeFolder):
    def __init__(self, transform=None):
        super().__init__(drawn("broken", draw_broken_folder), transform)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.imread(str(path))
        if image is None:
            return None
        image = self.transform(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
        return image, CLASSES.index(path.parent.name)
