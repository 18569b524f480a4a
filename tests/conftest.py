"""What tests of every folder may ask for."""

from servers import moto, seaweedfs

__all__ = ["moto", "seaweedfs"]
