"""The plain data in a pickle, without running anything that the pickle names.

Python's own unpickler imports and calls whatever a file asks for. This one is a small machine over the opcodes that data needs: containers, texts
and numbers are built here, a name of an importable thing is looked up in a table the caller gives, and nothing is ever imported. Everything
else is a PickleError that says what was asked for and where.
"""

import pickletools

# Opcodes whose argument is the value itself.
_CONSTANTS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}
_SIMPLE = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MARK = object()
MAX_OPCODES = 2_000_000


class PickleError(Exception):
    """What a pickle asks for and does not get."""


def _pairs(values):
    if len(values) % 2:
        raise ValueError("a key without a value")
    return zip(values[::2], values[1::2])


class Attributed(dict):
    """A dict that was pickled with attributes (an OrderedDict such as a state_dict); the attributes are dropped."""


def read_pickle(file, named, persistent=None):
    """The value of the pickle that starts at the file's position; afterwards the position is behind it.

    named       (module, name) -> function of positional arguments, for what the pickle may build; a name that is an argument itself comes as Name
    persistent  function of a persistent id (PyTorch's way to speak of a storage); None: refused
    """
    return _Machine(named, persistent).run(file)


class Name:
    """An importable thing that the pickle names, `module.name`; what it builds is the caller's function."""

    def __init__(self, text, build):
        self.text, self.build = text, build


class _Machine:
    def __init__(self, named, persistent):
        self._named, self._persistent = named, persistent
        self._stack, self._memo = [], {}

    def run(self, file):
        where = 0
        try:
            for count, (opcode, argument, where) in enumerate(pickletools.genops(file)):
                if count > MAX_OPCODES:
                    raise PickleError(f"more than {MAX_OPCODES} opcodes")
                if opcode.name == "STOP":
                    return self._only()
                self._step(opcode.name, argument)
        except PickleError as fault:
            raise PickleError(f"pickle, byte {where}: {fault}") from None
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, MemoryError, OverflowError) as fault:
            raise PickleError(f"pickle, byte {where}: broken ({type(fault).__name__}: {fault})") from None
        raise PickleError("pickle: ends without a value")

    def _only(self):
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise PickleError("ends with something other than one value")
        if isinstance(self._stack[0], Name):
            raise PickleError(f"is nothing but a name: {self._stack[0].text}")
        return self._stack[0]

    def _since_mark(self):
        at = len(self._stack) - 1
        while at >= 0 and self._stack[at] is not _MARK:
            at -= 1
        if at < 0:
            raise PickleError("a mark is missing")
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def _pop(self):
        value = self._stack.pop()
        if value is _MARK:
            raise PickleError("a value is missing")
        return value

    def _step(self, name, argument):
        stack = self._stack
        if name in _CONSTANTS:
            stack.append(argument)
        elif name in _SIMPLE:
            stack.append(_SIMPLE[name])
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
        elif name in ("TUPLE", "LIST"):
            stack.append((tuple if name == "TUPLE" else list)(self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            values = [self._pop() for _ in range(int(name[-1]))]
            stack.append(tuple(reversed(values)))
        elif name == "DICT":
            values = self._since_mark()
            stack.append(dict(_pairs(values)))
        elif name in ("APPEND", "APPENDS"):
            values = [self._pop()] if name == "APPEND" else self._since_mark()
            self._container(list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [self._pop(), self._pop()][::-1] if name == "SETITEM" else self._since_mark()
            self._container(dict).update(_pairs(values))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            stack.append(self._lookup(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = self._pop(), self._pop()
            stack.append(self._lookup(module, attribute))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, callee = self._pop(), self._pop()
            stack.append(self._build(callee, arguments))
        elif name == "BUILD":
            self._pop()
            self._container(Attributed)
        elif name in ("BINPERSID", "PERSID"):
            if self._persistent is None:
                raise PickleError("speaks of data outside the pickle")
            identifier = self._pop() if name == "BINPERSID" else argument
            stack.append(self._persistent(identifier))
        else:
            raise PickleError(f"opcode {name} is not for data")

    def _container(self, kind):
        if not isinstance(self._stack[-1], kind):
            raise PickleError(f"fills or sets attributes of a {type(self._stack[-1]).__name__}, which is refused")
        return self._stack[-1]

    def _lookup(self, module, name):
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("a name that is no text")
        build = self._named.get((module, name))
        if build is None:
            raise PickleError(f"{module}.{name} is refused: only tensors, texts, numbers, lists, tuples and dicts are read")
        return Name(f"{module}.{name}", build)

    def _build(self, callee, arguments):
        if not isinstance(callee, Name) or not isinstance(arguments, tuple):
            raise PickleError("calls something that has no name")
        return callee.build(*arguments)
