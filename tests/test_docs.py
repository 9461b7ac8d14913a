"""The documentation of public names is there, complete, and true."""

import doctest
import importlib
import inspect
import pkgutil
import re
import types

import pytest

import slabq

MODULES = sorted(
    name
    for _, name, _ in pkgutil.iter_modules(slabq.__path__)
    if name not in ("_core", "__main__")
)
FLAGS = doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    module = importlib.import_module(f"slabq.{name}")

    outcome = doctest.testmod(module, optionflags=FLAGS)

    assert outcome.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_a_module_opens_with_what_it_is(name):
    doc = importlib.import_module(f"slabq.{name}").__doc__

    assert doc
    assert doc.strip().splitlines()[0].endswith((".", ":"))


def test_every_name_of_all_is_there():
    for name in slabq.__all__:
        assert getattr(slabq, name) is not None


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'slob'"):
        slabq.slob  # noqa: B018


def public_callables():
    """Every public function, class and public method, with the name to read it by."""
    for name in slabq.__all__:
        thing = getattr(slabq, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield name, thing
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            function = getattr(value, "__func__", value)
            if not member.startswith("_") and isinstance(function, types.FunctionType):
                yield f"{name}.{member}", function


CALLABLES = dict(public_callables())
# Exceptions, tuples of fields and the like need no more than their sentences.
PLAIN = [
    name
    for name, thing in CALLABLES.items()
    if inspect.isclass(thing) and (issubclass(thing, BaseException | tuple))
]


def parameters_of(thing):
    names = list(inspect.signature(thing).parameters)
    return [name for name in names if name not in ("self", "cls")]


def section(doc, title):
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", doc, re.S | re.M)
    return found[1] if found else None


@pytest.mark.parametrize("name", [n for n in CALLABLES if n not in PLAIN])
def test_a_public_name_documents_its_parameters_and_shows_an_example(name):
    thing = CALLABLES[name]
    doc = inspect.getdoc(thing) or ""
    one_line_pointer = re.fullmatch(r".*; see `[\w.]+`\..*", doc, re.S)

    assert doc, f"{name} has no docstring"
    if one_line_pointer:
        return
    # What a result of the library is made by is written at its maker.
    made_elsewhere = "Made by `" in doc or "made by `" in doc
    if parameters_of(thing) and not made_elsewhere:
        assert section(doc, "Parameters") is not None, f"{name}: no Parameters"
    assert made_elsewhere or section(doc, "Examples") is not None, (
        f"{name}: no Examples"
    )


@pytest.mark.parametrize(
    "name", [n for n in CALLABLES if inspect.isfunction(CALLABLES[n])]
)
def test_every_documented_parameter_exists_and_every_parameter_is_documented(name):
    doc = inspect.getdoc(CALLABLES[name]) or ""
    text = section(doc, "Parameters")
    if text is None:
        return
    heads = re.findall(r"^([*\w][\w*, ]*?)(?: :.*)?$", text, re.M)
    documented = {part.strip(" *") for head in heads for part in head.split(",")}

    assert documented == set(parameters_of(CALLABLES[name]))
