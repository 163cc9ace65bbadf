"""The folder that `solcourse run` puts on PYTHONPATH: Python runs the sitecustomize.py in it before a program."""
