#!/usr/bin/env python3
"""C++ sources of a folder as documents with real structure, in JSON lines.

    pip install tree-sitter tree-sitter-cpp
    python examples/python/source_rows.py src > sources.jsonl
    build/tessera pack sources.jsonl --tokens 4096 -o rows

A token is a word, a run of blanks or one other byte. token_spans has the byte
range of each token, so the byte ranges of chunks convert exactly to tokens.
Chunks are functions (kind 1) and types (kind 2). A call edge goes to the called
function and a type edge to the named type, if the file defines it. dep_levels is
the length of the longest chain of calls from the token's function.
structure_ids is the number of the token's function or type, from 1.

A call is matched by the last part of its name alone: `m` for `a.m()`, `this->m()`,
`ns::m()` and `m<int>()`. Of several functions of one name (overloads, methods of
other classes or namespaces) the first in the file is taken, so an edge may go to
another function than the one that is called.
"""

import argparse
import bisect
import json
import pathlib
import re
import sys

import tree_sitter
import tree_sitter_cpp

TOKEN = re.compile(rb"\w+|[ \t\n]+|.", re.DOTALL)
FUNCTIONS = {"function_definition"}
TYPES = {"class_specifier", "struct_specifier", "enum_specifier"}
NAMES = {"identifier", "field_identifier", "type_identifier"}
# What tree-sitter puts around a name without a field: `&f()`, `(*f())`, `template f`.
AROUND = {"reference_declarator", "parenthesized_declarator", "dependent_name"}


def walk(root):
    """Yields every node before its children, with its depth and sibling index."""
    stack = [(root, 0, 0)]
    while stack:
        node, depth, place = stack.pop()
        yield node, depth, place
        stack.extend((child, depth + 1, i)
                     for i, child in reversed(list(enumerate(node.children))))


def last_name(node):
    """The last part of the name that a node calls or declares: `m` of `a.m`, `p->m`,
    `ns::m` and `m<int>`. None if it has no plain name, such as `table[i]`."""
    while node is not None and node.type not in NAMES:
        inner = (node.named_children if node.type in AROUND else
                 map(node.child_by_field_name, ("declarator", "field", "name")))
        node = next(filter(None, inner), None)
    return None if node is None else node.text


def innermost(starts, ends, at):
    """The innermost chunk that contains the byte `at`, or None."""
    for c in range(bisect.bisect_right(starts, at) - 1, -1, -1):
        if at < ends[c]:
            return c
    return None


def levels(calls, chunks):
    """The length of the longest chain of calls from each chunk. Chunks that call
    each other in a cycle count as one."""
    callees = [{b for a, b in calls if a == c} for c in range(chunks)]
    reached = []
    for c in range(chunks):
        found, left = {c}, [c]
        while left:
            new = callees[left.pop()] - found
            found |= new
            left += new
        reached.append(found)
    level = [0] * chunks
    # If c reaches d but d does not reach c, then d reaches fewer chunks than c. So
    # level[d] is set before level[c].
    for c in sorted(range(chunks), key=lambda c: len(reached[c])):
        level[c] = max((level[d] + 1 for d in reached[c] if c not in reached[d]),
                       default=0)
    return level


def document(text, parser, vocabulary):
    nodes = list(walk(parser.parse(text).root_node))
    chunks = [n for n, _, _ in nodes
              if n.type in FUNCTIONS | TYPES and n.child_by_field_name("body")]
    starts, ends = [c.start_byte for c in chunks], [c.end_byte for c in chunks]
    defined = {True: {}, False: {}}  # functions, types
    for i, c in enumerate(chunks):
        name = last_name(c)
        if name is not None:
            defined[c.type in FUNCTIONS].setdefault(name, i)
    edges = {True: set(), False: set()}
    for n, _, _ in nodes:
        called = n.child_by_field_name("function") if n.type == "call_expression" else None
        if called is None and n.type != "type_identifier":
            continue
        to = defined[called is not None].get(last_name(called or n))
        source = innermost(starts, ends, n.start_byte)
        if to is not None and source is not None and source != to:
            edges[called is not None].add((source, to))
    level = levels(edges[True], len(chunks))

    # A node comes after its ancestors, so each byte ends with its deepest node.
    deepest = [(0, 0, 0)] * (len(text) + 1)
    for n, depth, place in nodes:
        here = (depth, place, n.kind_id)
        deepest[n.start_byte:n.end_byte] = [here] * (n.end_byte - n.start_byte)
    spans = [m.span() for m in TOKEN.finditer(text)]
    inside = [innermost(starts, ends, a) for a, _ in spans]
    return {
        "input_ids": [vocabulary.setdefault(text[a:b], len(vocabulary) + 1)
                      for a, b in spans],
        "token_spans": spans,
        "ast_depth": [deepest[a][0] for a, _ in spans],
        "sibling_index": [deepest[a][1] for a, _ in spans],
        "node_type": [deepest[a][2] for a, _ in spans],
        "structure_ids": [0 if c is None else c + 1 for c in inside],
        "dep_levels": [0 if c is None else level[c] for c in inside],
        "chunk_unit": "character",
        "chunk_starts": starts,
        "chunk_ends": ends,
        "chunk_kinds": [1 if c.type in FUNCTIONS else 2 for c in chunks],
        "call_edges": sorted(edges[True]),
        "type_edges": sorted(edges[False]),
    }


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=pathlib.Path)
    folder = arguments.parse_args().folder
    if not folder.is_dir():
        arguments.error(f"FOLDER must be a folder, found '{folder}'")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
    vocabulary = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".cc", ".h")):
        json.dump(document(path.read_bytes(), parser, vocabulary), sys.stdout)
        print()


if __name__ == "__main__":
    main()
