"""Builds and runs images from the project's Dockerfile in a chroot, for machines without a container runtime."""
