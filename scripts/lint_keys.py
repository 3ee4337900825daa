#!/usr/bin/env python3
"""Reads source files' names, one a line; writes "KEY NAME" for each: KEY changes with the file, with any header of the
project that it includes, also through others, and with .clang-tidy."""
import functools
import hashlib
import os
import re
import sys

FOLDERS = ("include", "src", ".")  # as the compiler is told, and beside the file itself
INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


@functools.lru_cache(maxsize=None)
def read(path):
    with open(path, "rb") as file:
        return file.read()


@functools.lru_cache(maxsize=None)
def included(path):
    """The project's files that one file names itself."""
    names = (match.decode() for match in INCLUDE.findall(read(path)))
    tried = (os.path.normpath(os.path.join(folder, name)) for name in names for folder in (os.path.dirname(path), *FOLDERS))
    return {each for each in tried if os.path.isfile(each)}


def closure(path):
    found, left = set(), [path]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left.extend(included(each))
    return sorted(found)


def key(path):
    digest = hashlib.sha256(read(".clang-tidy"))
    for each in closure(path):
        digest.update(each.encode() + b"\0" + hashlib.sha256(read(each)).digest())
    return digest.hexdigest()


for line in sys.stdin:
    print(key(line.strip()), line.strip())
