"""Seeded mistakes in a kernel, to check that a test detects them.

A mutation finds its sites by operations and their operands, so it works on any
kernel. A mutation without a site is an error, unless the caller says that there
is none. Dead operations are no sites. Some mutants are equivalent to the kernel
(for example a branch that only saves work, always taken): the caller names
those.

    for mutant in mutants(kernel):
        caught = judge(mutant.kernel())
"""

import dataclasses
import random

import mlir_module
from errors import EvaluatorError
from kernel import Kernel
from mutation_sites import MUTATIONS, Module
from translate import summary

# Each of these modules registers its mutations when it is imported.
import copy_mutations
import memory_mutations
import order_mutations
import rounding_mutations
import value_mutations


class MutationError(Exception):
    """A mutation has no site, or makes a module that does not verify."""


@dataclasses.dataclass
class Mutant:
    """One mutation at one site of a kernel."""

    original: Kernel
    mutation: str
    site: int
    sites: int  # number of all sites of the mutation
    where: str

    @property
    def name(self):
        return f"{self.mutation}[{self.site}]"

    def kernel(self):
        with mlir_module.context():
            module = mlir_module.parse(self.original.text)
            _, change = find_sites(module, self.mutation)[self.site]
            change()
            try:
                mlir_module.verify(module)
                text = mlir_module.text_of(module)
                return Kernel(text, f"{self.original.name} {self.name}")
            except EvaluatorError as error:
                raise MutationError(f"{self.name}: {error}") from error


def mutants(kernel, names=None, absent=(), sample=None, seed=0):
    """Every mutant, or at most `sample` of each mutation, drawn by `seed`.

    A mutation without a site is an error, except those in `absent`, for which
    this kernel has none. If one of those has a site, that is an error too, so
    that the list stays right.
    """
    out = []
    for name in names or MUTATIONS:
        with mlir_module.context():
            module = mlir_module.parse(kernel.text)
            places = [place for place, _ in find_sites(module, name)]
            sites = range(len(places))
            if sample is not None and sample < len(places):
                # Seeded by name, so that mutations are drawn independently.
                draw = random.Random(f"{seed} {name}")
                sites = sorted(draw.sample(sites, sample))
            where = [words_of(places[site]) for site in sites]
        if bool(places) == (name in absent):
            found = f"{len(places)} sites" if places else "no site"
            raise MutationError(
                f"[mutate] {name} has a site unless said otherwise, found "
                f"{found} for {kernel.name}"
            )
        out += [
            Mutant(kernel, name, site, len(places), words)
            for site, words in zip(sites, where)
        ]
    return out


def survivors(found, judge, equivalent=()):
    """The names and places of mutants that `judge` wrongly accepts or rejects.

    `judge(kernel)` says whether the results are right; an EvaluatorError also
    rejects a mutant. `equivalent` names mutants, such as "dropped_store[3]",
    that are equivalent to the kernel. They must be accepted: one that is not,
    or does not exist, is returned too.
    """
    out = []
    for mutant in found:
        try:
            lives = judge(mutant.kernel())
        except EvaluatorError:
            lives = False
        if lives and mutant.name not in equivalent:
            out.append(f"{mutant.name} lives: {mutant.where}")
        if not lives and mutant.name in equivalent:
            out.append(f"{mutant.name} is caught: {mutant.where}")
    sites = {mutant.mutation: mutant.sites for mutant in found}
    for name in equivalent:
        kind, _, site = name.removesuffix("]").partition("[")
        if kind not in MUTATIONS or int(site) >= sites.get(kind, int(site) + 1):
            out.append(f"{name} is no mutant")
    return out


def find_sites(module, name):
    return list(MUTATIONS[name](Module(module)))


def words_of(place):
    """Text of a place: an operation, (text, operation), or text."""
    if isinstance(place, str):
        return place
    if isinstance(place, tuple):
        return f"{place[0]}: {summary(place[1])}"
    return summary(place)
