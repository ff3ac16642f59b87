// audit/audit.cc: requires a sharding for every array that enters or leaves a
// program, or is resharded in it.
#include <fmt/format.h>

#include "audit/boundaries.h"
#include "audit/collectives.h"
#include "audit/main_function.h"
#include "audit/program.h"
#include "shard/fingerprint.h"
#include "tessera/shard.h"

namespace tessera {
namespace audit {
namespace {

// For a program with one mesh, the fingerprint equals that of its plan.
std::string fingerprint_of(const Program& p, const Audit& a) {
  std::string meshes;
  for (const std::string& name : p.mesh_names) {
    const std::string text = text_of(p.meshes.by_name.at(name));
    if (p.mesh_names.size() > 1) meshes += name + ":";
    meshes += text;
    if (p.mesh_names.size() > 1) meshes += ";";
  }
  if (p.mesh_names.empty()) meshes = fmt::format("{} devices", a.partitions);
  std::vector<shard::PlacedArray> arrays;
  for (const auto* side : {&a.arguments, &a.results}) {
    for (const AuditArray& x : *side) {
      arrays.push_back({x.name, x.dtype, x.shape, x.sharding});
    }
  }
  return shard::fingerprint_of(meshes, arrays);
}

// Whether the operation is in the main function, which no other function calls.
bool runs_once(const Module& m, uint32_t op, uint32_t main) {
  while (op != kNone && op != main) op = m.ops[op].parent;
  return op == main;
}

}  // namespace
}  // namespace audit

Result<Audit> audit_program(std::string_view text) {
  auto program = audit::read_program(text);
  if (!program) return program.error();
  auto main = audit::read_main(*program);
  if (!main) return main.error();
  Audit out;
  out.partitions = program->meshes.partitions;
  out.arguments = std::move(main->arguments);
  out.results = std::move(main->results);
  for (const std::string& name : program->mesh_names) {
    out.meshes.push_back(program->meshes.by_name.at(name));
  }
  const audit::Module& m = program->m;
  for (uint32_t i = 0; i < m.ops.size(); ++i) {
    auto boundary = audit::read_boundary(*program, i);
    if (!boundary) return boundary.error();
    if (*boundary) out.boundaries.push_back(std::move(**boundary));
    auto collective = audit::read_collective(m, m.ops[i], program->devices);
    if (!collective) return collective.error();
    if (!*collective) continue;
    out.collectives.push_back(std::move(**collective));
    out.collectives.back().repeats |= !audit::runs_once(m, i, main->op);
  }
  out.fingerprint = audit::fingerprint_of(*program, out);
  return out;
}

}  // namespace tessera
