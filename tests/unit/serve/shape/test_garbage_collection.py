import subprocess
import sys

# A separate process: frozen objects would hide the garbage of other tests.
SCRIPT = """
import gc, weakref
from serve.shape.garbage_collection import freeze_loaded_objects

class Cyclic:
    def __init__(self):
        self.itself = self

model = Cyclic()
known = weakref.ref(model)
freeze_loaded_objects()
assert all(each is not model for each in gc.get_objects()), "is looked through"
del model
gc.collect()
assert known() is not None, "is looked through"
freeze_loaded_objects()
assert known() is None, "is garbage, and still there"
"""


def test_loaded_objects_are_not_traversed_and_the_next_call_frees_them() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
