"""Data sets, the roles their records play, and how clients share them out."""

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, load

__all__ = ["DataRequest", "ImageSet", "LoadedData", "load"]
