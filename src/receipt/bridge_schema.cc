// receipt/bridge_schema.cc: the JSON schema of bridge receipts.
// docs/bridge_receipt.schema.json is the same text; a test compares them.
#include "tessera/receipt.h"

namespace tessera {
namespace {

// clang-format off
constexpr std::string_view kSchema = R"json({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Tessera bridge receipt",
  "description": "What `tessera bridge` ran, and its proof. docs/bridge.md explains every field.",
  "type": "object",
  "properties": {
    "schema": {"const": 2},
    "tessera": {"type": "string"},
    "lane": {
      "type": "object",
      "properties": {
        "requested": {"const": "jax_bridge"},
        "source": {"const": "command"},
        "executed": {"const": "jax_bridge"},
        "family": {"const": "tpu/jax"},
        "runtime_mode": {"const": "executed"}
      },
      "required": ["requested", "source", "executed", "family", "runtime_mode"],
      "additionalProperties": false
    },
    "plugin": {
      "type": "object",
      "properties": {
        "file": {"type": "string"},
        "api": {"type": "string"},
        "platform": {"type": "string"},
        "platform_version": {"type": "string"},
        "device": {"type": "string"},
        "number": {"$ref": "#/$defs/count"}
      },
      "required": ["file", "api", "platform", "platform_version", "device", "number"],
      "additionalProperties": false
    },
    "operation": {"type": "string"},
    "name": {"type": "string"},
    "artifact": {
      "type": "object",
      "properties": {
        "file": {"type": "string"},
        "shapes_file": {"type": "string"},
        "bytes": {"$ref": "#/$defs/count"},
        "digest": {"$ref": "#/$defs/digest"},
        "jax": {"type": "string"},
        "calling_convention_version": {"$ref": "#/$defs/count"},
        "platforms": {"type": "array", "items": {"type": "string"}}
      },
      "required": [
        "file",
        "shapes_file",
        "bytes",
        "digest",
        "jax",
        "calling_convention_version",
        "platforms"
      ],
      "additionalProperties": false
    },
    "inputs": {
      "type": "object",
      "properties": {
        "seed": {"$ref": "#/$defs/count"},
        "file": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "drawn": {"type": "array", "items": {"type": "string"}},
        "arrays": {
          "type": "array",
          "items": {
            "type": "object",
            "properties": {
              "name": {"type": "string"},
              "dtype": {"type": "string"},
              "shape": {"type": "array", "items": {"$ref": "#/$defs/count"}}
            },
            "required": ["name", "dtype", "shape"],
            "additionalProperties": false
          }
        },
        "digests": {"type": "object", "additionalProperties": {"$ref": "#/$defs/digest"}}
      },
      "required": ["seed", "file", "drawn", "arrays", "digests"],
      "additionalProperties": false
    },
    "outputs": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "name": {"type": "string"},
          "dtype": {"type": "string"},
          "shape": {"type": "array", "items": {"$ref": "#/$defs/count"}}
        },
        "required": ["name", "dtype", "shape"],
        "additionalProperties": false
      }
    },
    "key": {
      "type": "object",
      "properties": {
        "digest": {"$ref": "#/$defs/digest"},
        "wider": {"const": true},
        "of": {"type": "string"},
        "terms": {"type": "object"}
      },
      "required": ["digest", "wider", "of", "terms"],
      "additionalProperties": false
    },
    "compiles": {"$ref": "#/$defs/count"},
    "cache_hits": {
      "type": "object",
      "properties": {"memory": {"$ref": "#/$defs/count"}, "disk": {"$ref": "#/$defs/count"}},
      "required": ["memory", "disk"],
      "additionalProperties": false
    },
    "fallback": {"type": "null"},
    "ms": {
      "type": "object",
      "properties": {
        "compile": {"$ref": "#/$defs/number0"},
        "transfer": {"$ref": "#/$defs/number0"},
        "run": {"$ref": "#/$defs/number0"}
      },
      "required": ["compile", "transfer", "run"],
      "additionalProperties": false
    },
    "warnings": {"type": "array", "items": {"type": "string"}},
    "check": {
      "type": "object",
      "properties": {
        "kind": {"enum": ["none", "sampled", "full"]},
        "rows": {"$ref": "#/$defs/count"},
        "max_error": {"$ref": "#/$defs/number0"},
        "max_bound_ratio": {"$ref": "#/$defs/number0"},
        "passed": {"type": "boolean"},
        "worst": {"type": "string"}
      },
      "required": ["kind", "rows"],
      "additionalProperties": false
    },
    "output": {
      "type": "object",
      "properties": {"digest": {"$ref": "#/$defs/digest"}},
      "required": ["digest"],
      "additionalProperties": false
    },
    "receipt_digest": {"$ref": "#/$defs/digest"}
  },
  "required": [
    "schema",
    "tessera",
    "lane",
    "plugin",
    "operation",
    "name",
    "artifact",
    "inputs",
    "outputs",
    "key",
    "compiles",
    "cache_hits",
    "fallback",
    "ms",
    "warnings",
    "check",
    "output",
    "receipt_digest"
  ],
  "additionalProperties": false,
  "$defs": {
    "count": {"type": "integer", "minimum": 0},
    "number0": {"type": "number", "minimum": 0},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{32}$"}
  }
}
)json";
// clang-format on

}  // namespace

std::string_view bridge_receipt_schema() { return kSchema; }

}  // namespace tessera
