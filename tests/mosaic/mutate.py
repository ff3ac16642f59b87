"""Seeded mistakes in a kernel, to see that a test notices them.

A mutation finds its sites by operations and their operands, so it works on any
kernel; one that finds none is an error, unless the caller knows better. Dead
operations are no sites. Some mutants mean the same as the kernel (a branch
that only saves work, taken always): the caller names those, with the reason.

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

# What is imported registers its mutations.
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
    sites: int  # that the mutation has in all
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

    A mutation without a site is an error. `absent`: those for which this
    kernel is known to have none. If one has a site after all, that is an error
    too: the list must not rot.
    """
    out = []
    for name in names or MUTATIONS:
        with mlir_module.context():
            module = mlir_module.parse(kernel.text)
            places = [place for place, _ in find_sites(module, name)]
            sites = range(len(places))
            if sample is not None and sample < len(places):
                # By name, so that one mutation's draw does not hang on others.
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
    """What is wrong: mutants that `judge` accepts, named with their place.

    `judge(kernel)` says whether the results are right; an EvaluatorError
    catches a mutant as well. `equivalent` names mutants, "dropped_store[3]",
    that mean the same as the kernel. They must survive: one that does not, or
    is not there, is returned too.
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
    """Of an operation, or of words about it and the operation, or words alone."""
    if isinstance(place, str):
        return place
    if isinstance(place, tuple):
        return f"{place[0]}: {summary(place[1])}"
    return summary(place)
