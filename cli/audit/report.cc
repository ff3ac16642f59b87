// cli/audit/report.cc: what `tessera audit` prints.
#include "cli/audit/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json array_json(const AuditArray& a) {
  return {{"name", a.name},   {"dtype", a.dtype},
          {"shape", a.shape}, {"sharding", a.sharding},
          {"part", a.part},   {"bytes", a.part_bytes}};
}

json arrays_json(const std::vector<AuditArray>& arrays) {
  json out = json::array();
  for (const AuditArray& a : arrays) out.push_back(array_json(a));
  return out;
}

json meshes_json(const Audit& audit) {
  json out = json::array();
  for (const AuditMesh& m : audit.meshes) {
    json axes = json::array();
    for (const MeshAxis& a : m.axes) {
      axes.push_back({{"name", on_a_line(a.name)}, {"size", a.size}});
    }
    out.push_back(
        {{"name", m.name}, {"axes", std::move(axes)}, {"devices", m.devices}});
  }
  return out;
}

std::string type_text(const std::string& dtype,
                      const std::vector<int64_t>& shape) {
  return fmt::format("{}[{}]", dtype, fmt::join(shape, ","));
}

// A table of arrays; the name column has the width of the longest name.
std::string arrays_text(const char* title,
                        const std::vector<AuditArray>& arrays) {
  size_t name = 0;
  size_t type = 0;
  for (const AuditArray& a : arrays) {
    name = std::max(name, a.name.size());
    type = std::max(type, type_text(a.dtype, a.shape).size());
  }
  std::string out;
  for (const AuditArray& a : arrays) {
    out += fmt::format("{:<11} {:<{}}  {:<{}}  {}, {} bytes a device\n", title,
                       a.name, name, type_text(a.dtype, a.shape), type,
                       a.sharding, a.part_bytes);
  }
  return out;
}

std::string collective_text(const AuditCollective& c) {
  const std::string sent =
      c.sent_bytes ? std::to_string(*c.sent_bytes) : "as many as a run says";
  return fmt::format(
      "{:<11} {} of {} on line {}, {} of {} devices: {} bytes"
      "{}\n",
      "collective", c.op, type_text(c.dtype, c.shape), c.line,
      c.groups == 1 ? "one group" : fmt::format("{} groups", c.groups),
      c.group_devices, sent, c.repeats ? " each time" : "");
}

struct Sent {
  int64_t bytes = 0;
  bool exact = true;  // each op runs once, with sizes known at compile time
};
Sent sent_once(const Audit& audit) {
  Sent out;
  for (const AuditCollective& c : audit.collectives) {
    out.exact = out.exact && c.sent_bytes && !c.repeats &&
                !__builtin_add_overflow(out.bytes, *c.sent_bytes, &out.bytes);
  }
  return out;
}

}  // namespace

json audit_json(const Audit& audit) {
  json boundaries = json::array();
  for (const AuditBoundary& b : audit.boundaries) {
    boundaries.push_back(
        {{"op", b.op}, {"line", b.line}, {"arrays", arrays_json(b.arrays)}});
  }
  json collectives = json::array();
  for (const AuditCollective& c : audit.collectives) {
    collectives.push_back({{"op", c.op},
                           {"line", c.line},
                           {"dtype", c.dtype},
                           {"shape", c.shape},
                           {"groups", c.groups},
                           {"group_devices", c.group_devices},
                           {"operand_bytes", c.operand_bytes},
                           {"sent_bytes", nullptr},
                           {"repeats", c.repeats}});
    if (c.sent_bytes) collectives.back()["sent_bytes"] = *c.sent_bytes;
  }
  const Sent sent = sent_once(audit);
  return {{"partitions", audit.partitions},
          {"meshes", meshes_json(audit)},
          {"arguments", arrays_json(audit.arguments)},
          {"results", arrays_json(audit.results)},
          {"boundaries", std::move(boundaries)},
          {"collectives", std::move(collectives)},
          {"sent_bytes", sent.exact ? json(sent.bytes) : json(nullptr)},
          {"fingerprint", audit.fingerprint}};
}

std::span<const JsonField> audit_json_fields() {
  static constexpr JsonField kFields[] = {
      {"partitions"},
      {"meshes[].{name,devices}, meshes[].axes[].{name,size}"},
      {"{arguments,results}[].{name,dtype,shape,sharding,part,bytes}",
       "part: shape of what one device has; bytes: of that part"},
      {"boundaries[].{op,line}, "
       "boundaries[].arrays[].{name,dtype,shape,sharding,part,bytes}"},
      {"collectives[].{op,line,dtype,shape,groups,group_devices,operand_bytes,"
       "sent_bytes,repeats}",
       "sent_bytes: over all devices, null where a run tells it; repeats: in a "
       "loop, or a function that is called"},
      {"sent_bytes", "sum of all; null where one repeats or is null"},
      {"fingerprint"},
  };
  return kFields;
}

std::string audit_text(const Audit& audit) {
  std::string out;
  for (const AuditMesh& m : audit.meshes) {
    out += fmt::format("{:<11} {}:", "mesh", m.name);
    for (const MeshAxis& a : m.axes) {
      out += fmt::format(" {}={}", on_a_line(a.name), a.size);
    }
    out += fmt::format(" ({} devices)\n", m.devices);
  }
  out += fmt::format("{:<11} {}\n", "partitions", audit.partitions);
  out += arrays_text("parameter", audit.arguments);
  out += arrays_text("result", audit.results);
  for (const AuditBoundary& b : audit.boundaries) {
    out += fmt::format("{:<11} {} on line {}\n", "boundary", b.op, b.line);
    out += arrays_text("", b.arrays);
  }
  for (const AuditCollective& c : audit.collectives) out += collective_text(c);
  const Sent sent = sent_once(audit);
  out += fmt::format("{:<11} {}\n", "sent",
                     sent.exact ? fmt::format("{} bytes", sent.bytes)
                                : "more than the text tells");
  return out + fmt::format("{:<11} {}\n", "fingerprint", audit.fingerprint);
}

}  // namespace tessera::cli
