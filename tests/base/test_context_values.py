"""Values of the running thread: blocks restore them, threads do not see each other's."""

import threading
from contextvars import ContextVar

import pytest

from tremula.base.context_values import ContextSetting, pushed, set_inside
from tremula.base.source import at_source, source_at, user_source


def _in_thread(function):
    """The result of a function in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_block_sets_and_restores_for_its_thread_only():
    """Inside a block this thread reads the new value, another the default; errors restore, too."""
    variable = ContextVar("test", default=0)
    with set_inside(variable, 1):
        assert variable.get() == 1
        assert _in_thread(variable.get) == 0
    assert variable.get() == 0
    with pytest.raises(ZeroDivisionError), set_inside(variable, 1):
        raise ZeroDivisionError
    assert variable.get() == 0


def test_stacks_grow_and_shrink():
    """Entries are pushed for a block; the innermost is the last."""
    stack = ContextVar("stack", default=())
    with pushed(stack, "a"), pushed(stack, "b"):
        assert stack.get() == ("a", "b")
        assert _in_thread(stack.get) == ()
    assert stack.get() == ()


def test_the_main_thread_chooses_for_threads_that_do_not():
    """A setting of the main thread is the default of others, whose own choice stays theirs."""
    setting = ContextSetting("test", "default")
    setting.set("main")
    assert _in_thread(setting.get) == "main"

    def choose():
        setting.set("mine")
        return setting.get()

    assert _in_thread(choose) == "mine"
    assert setting.get() == "main"
    setting.reset()
    assert setting.get() == "default"


def test_a_choice_inside_a_block_ends_with_it():
    """What is chosen inside `set_inside` is undone by its end, whatever the thread."""
    setting = ContextSetting("test", 0)
    with setting.set_inside(1):
        setting.set(2)
        assert setting.get() == 2
    assert setting.get() == 0


def test_stated_lines_belong_to_a_thread():
    """A line stated in one thread does not name the operations of another."""
    stated = source_at("model.py", 7)
    with at_source(stated):
        assert user_source() is stated
        assert _in_thread(user_source) is not stated
