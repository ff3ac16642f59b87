// receipt/schema.cc: the JSON schema of receipts. docs/receipt.schema.json is
// the same text; a test compares them.
#include "tessera/receipt.h"

namespace tessera {
namespace {

// clang-format off
constexpr std::string_view kSchema = R"json({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Tessera receipt",
  "description": "What a run was asked, what really ran, and its proof. docs/receipt.md explains every field.",
  "type": "object",
  "properties": {
    "schema": {"const": 3},
    "tessera": {"type": "string"},
    "lane": {
      "type": "object",
      "properties": {
        "requested": {
          "enum": [
            "auto", "cpu", "xla", "mosaic", "jax_bridge", "cuda", "reference"
          ]
        },
        "source": {"enum": ["flag", "caller", "default"]},
        "chosen": {"$ref": "#/$defs/lane"},
        "executed": {
          "anyOf": [
            {"type": "null"}, {"enum": ["cpu", "xla", "mosaic", "jax_bridge", "reference"]}
          ]
        },
        "family": {"enum": ["native", "reference", "tpu/jax", "cuda", "xla"]},
        "runtime_mode": {"enum": ["executed", "compiled only"]},
        "fallback_allowed": {
          "type": "array",
          "items": {"enum": ["cpu", "xla", "reference"]}
        }
      },
      "required": [
        "requested", "source", "chosen", "executed", "family", "runtime_mode",
        "fallback_allowed"
      ],
      "additionalProperties": false
    },
    "choice": {
      "type": "object",
      "properties": {
        "class": {"enum": ["sparse blocks", "custom", "plain causal", "other"]},
        "reason": {"type": "string"},
        "rejected": {
          "type": "object",
          "properties": {
            "cpu": {"type": "string"},
            "xla": {"type": "string"},
            "mosaic": {"type": "string"},
            "jax_bridge": {"type": "string"},
            "cuda": {"type": "string"},
            "reference": {"type": "string"}
          },
          "additionalProperties": false
        },
        "measured": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/gate_row"}]}
      },
      "required": ["class", "reason", "rejected", "measured"],
      "additionalProperties": false
    },
    "machine": {
      "type": "object",
      "properties": {
        "cpu": {"type": "string"},
        "system": {"type": "string"},
        "threads": {"$ref": "#/$defs/threads"},
        "isas": {"type": "array", "items": {"$ref": "#/$defs/isa"}},
        "loads_plugins": {"type": "boolean"},
        "asked_plugins": {"type": "boolean"},
        "plugins": {
          "type": "array",
          "items": {
            "type": "object",
            "properties": {
              "name": {"type": "string"},
              "platform": {"type": "string"},
              "devices": {"$ref": "#/$defs/count"}
            },
            "required": ["name", "platform", "devices"],
            "additionalProperties": false
          }
        }
      },
      "required": [
        "cpu", "system", "threads", "isas", "loads_plugins", "asked_plugins",
        "plugins"
      ],
      "additionalProperties": false
    },
    "isa": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/isa"}]},
    "threads": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/threads"}]},
    "device": {"type": "string"},
    "plugin": {
      "anyOf": [
        {"type": "null"},
        {"type": "object", "properties": {"file": {"type": "string"}, "api": {"type": "string"}, "platform": {"type": "string"}, "platform_version": {"type": "string"}, "device": {"type": "string"}, "number": {"$ref": "#/$defs/count"}}, "required": ["file", "api", "platform", "platform_version", "device", "number"], "additionalProperties": false}
      ]
    },
    "method": {
      "anyOf": [{"type": "null"}, {"enum": ["worklist", "chunked", "dense"]}]
    },
    "artifact": {
      "anyOf": [
        {"type": "null"},
        {
          "type": "object",
          "properties": {
            "file": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "shapes_file": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "digest": {"$ref": "#/$defs/digest"}
          },
          "required": ["file", "shapes_file", "digest"],
          "additionalProperties": false
        }
      ]
    },
    "parameters": {
      "type": "object",
      "additionalProperties": {"$ref": "#/$defs/count"}
    },
    "direction": {"enum": ["forward", "forward+backward"]},
    "request": {
      "type": "object",
      "properties": {
        "mask": {"type": "array", "items": {"type": "string"}},
        "batch": {"$ref": "#/$defs/count"},
        "q_len": {"$ref": "#/$defs/count"},
        "kv_len": {"$ref": "#/$defs/count"},
        "tile": {"type": "array", "items": {"$ref": "#/$defs/count"}},
        "docs": {"type": "string"},
        "q_docs": {"type": "string"},
        "prefix": {"type": "string"},
        "picks": {"type": "string"},
        "target": {"type": "string"},
        "logical_block": {"type": "string"},
        "q_offset": {"type": "string"},
        "valid": {"type": "array", "items": {"type": "string"}},
        "max_steps": {"$ref": "#/$defs/count"},
        "max_width": {"$ref": "#/$defs/count"},
        "max_union": {"$ref": "#/$defs/count"}
      },
      "required": ["mask", "batch", "q_len", "kv_len", "tile"],
      "additionalProperties": false
    },
    "plan_file": {"anyOf": [{"type": "null"}, {"type": "string"}]},
    "facts_digest": {"$ref": "#/$defs/digest"},
    "shape": {
      "type": "object",
      "properties": {
        "heads": {"$ref": "#/$defs/count"},
        "kv_heads": {"$ref": "#/$defs/count"},
        "head_dim": {"$ref": "#/$defs/count"},
        "v_head_dim": {"$ref": "#/$defs/count"},
        "dtype": {"enum": ["f32", "bf16", "f16"]},
        "layout": {"enum": ["bhsd", "bshd", "strided"]},
        "scale": {"type": "number"},
        "softcap": {"$ref": "#/$defs/number0"},
        "sink_logits": {"type": "boolean"}
      },
      "required": [
        "heads", "kv_heads", "head_dim", "v_head_dim", "dtype", "layout",
        "scale", "softcap", "sink_logits"
      ],
      "additionalProperties": false
    },
    "inputs": {
      "type": "object",
      "properties": {
        "seed": {"$ref": "#/$defs/count"},
        "file": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "drawn": {"type": "array", "items": {"type": "string"}},
        "digests": {
          "type": "object",
          "additionalProperties": {"$ref": "#/$defs/digest"}
        }
      },
      "required": ["seed", "file", "drawn", "digests"],
      "additionalProperties": false
    },
    "contract": {"$ref": "#/$defs/digest"},
    "kernels": {"type": "object", "additionalProperties": {"$ref": "#/$defs/digest"}},
    "plan": {
      "type": "object",
      "properties": {"digest": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/digest"}]}},
      "required": ["digest"],
      "additionalProperties": false
    },
    "tiles": {
      "type": "object",
      "properties": {
        "run": {"$ref": "#/$defs/count"},
        "skipped": {"$ref": "#/$defs/count"}
      },
      "required": ["run", "skipped"],
      "additionalProperties": false
    },
    "pairs": {
      "type": "object",
      "properties": {"legal": {"$ref": "#/$defs/count"}, "run": {"$ref": "#/$defs/count"}},
      "required": ["legal", "run"],
      "additionalProperties": false
    },
    "routing": {
      "anyOf": [
        {"type": "null"},
        {
          "type": "object",
          "properties": {
            "given": {"type": "boolean"},
            "settings": {
              "type": "object",
              "properties": {
                "rule": {"enum": ["kv-head", "query-head", "query-tile"]},
                "top": {"$ref": "#/$defs/count"},
                "block": {"$ref": "#/$defs/count"},
                "compression": {"$ref": "#/$defs/count"},
                "stride": {"$ref": "#/$defs/count"},
                "query_tile": {"$ref": "#/$defs/count"},
                "kv_tile": {"$ref": "#/$defs/count"},
                "sink_blocks": {"$ref": "#/$defs/count"},
                "hierarchical": {"type": "boolean"},
                "meta_ratio": {"$ref": "#/$defs/count"},
                "top_metas": {"$ref": "#/$defs/count"},
                "union_by": {"enum": ["bitmap", "sort"]},
                "meaning": {"enum": ["exact", "union"]},
                "strict": {"type": "boolean"}
              },
              "required": [
                "rule", "top", "block", "compression", "stride", "query_tile",
                "kv_tile", "sink_blocks", "hierarchical", "meta_ratio",
                "top_metas", "union_by", "meaning", "strict"
              ],
              "additionalProperties": false
            },
            "heads": {"$ref": "#/$defs/count"},
            "picks": {"$ref": "#/$defs/count"},
            "removed": {"$ref": "#/$defs/count"},
            "union_blocks": {"$ref": "#/$defs/count"},
            "tile_rows": {"$ref": "#/$defs/count"},
            "widest_union": {"$ref": "#/$defs/count"},
            "union_capacity": {"$ref": "#/$defs/count"},
            "phases": {
              "type": "array",
              "items": {
                "type": "object",
                "properties": {
                  "name": {"type": "string"},
                  "stages": {"type": "string"},
                  "gradient": {"enum": ["stop_gradient", "differentiable"]}
                },
                "required": ["name", "stages", "gradient"],
                "additionalProperties": false
              }
            }
          },
          "required": [
            "given", "settings", "heads", "picks", "removed", "union_blocks", "tile_rows", "widest_union",
            "union_capacity", "phases"
          ],
          "additionalProperties": false
        }
      ]
    },
    "compiles": {"$ref": "#/$defs/count"},
    "cache_hits": {
      "type": "object",
      "properties": {
        "memory": {"$ref": "#/$defs/count"},
        "disk": {"$ref": "#/$defs/count"}
      },
      "required": ["memory", "disk"],
      "additionalProperties": false
    },
    "fallback": {"anyOf": [{"type": "null"}, {"type": "string"}]},
    "ms": {
      "type": "object",
      "properties": {
        "route": {"$ref": "#/$defs/number0"},
        "plan": {"$ref": "#/$defs/number0"},
        "prepare": {"$ref": "#/$defs/number0"},
        "compile": {"$ref": "#/$defs/number0"},
        "transfer": {"$ref": "#/$defs/number0"},
        "forward": {"$ref": "#/$defs/number0"},
        "backward": {"$ref": "#/$defs/number0"},
        "total": {"$ref": "#/$defs/number0"}
      },
      "required": [
        "route", "plan", "prepare", "compile", "transfer", "forward", "backward",
        "total"
      ],
      "additionalProperties": false
    },
    "gflops": {
      "type": "object",
      "properties": {"useful": {"$ref": "#/$defs/number0"}},
      "required": ["useful"],
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
      "properties": {"digest": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/digest"}]}},
      "required": ["digest"],
      "additionalProperties": false
    },
    "receipt_digest": {"$ref": "#/$defs/digest"}
  },
  "required": [
    "schema", "tessera", "lane", "choice", "machine", "isa", "threads",
    "device", "plugin", "method", "artifact", "parameters", "direction", "request", "plan_file",
    "facts_digest", "shape", "inputs", "contract", "kernels", "plan", "tiles",
    "pairs", "routing", "compiles", "cache_hits", "fallback", "ms", "gflops", "warnings",
    "check", "output", "receipt_digest"
  ],
  "additionalProperties": false,
  "$defs": {
    "count": {"type": "integer", "minimum": 0},
    "number0": {"type": "number", "minimum": 0},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "isa": {"enum": ["portable", "avx2", "avx512", "avx512bf16"]},
    "lane": {"enum": ["cpu", "xla", "mosaic", "jax_bridge", "cuda", "reference"]},
    "threads": {"type": "integer", "minimum": 1, "maximum": 1048576},
    "gate_row": {
      "type": "object",
      "properties": {
        "kernel": {"type": "string"},
        "lane": {"enum": ["cpu", "mosaic", "cuda"]},
        "machine": {"type": "string"},
        "class": {"enum": ["sparse blocks", "custom", "plain causal", "other"]},
        "mask": {"type": "string"},
        "direction": {"enum": ["forward", "forward+backward"]},
        "dtype": {"enum": ["f32", "bf16", "f16"]},
        "q_len": {"$ref": "#/$defs/count"},
        "kv_len": {"$ref": "#/$defs/count"},
        "heads": {"$ref": "#/$defs/count"},
        "kv_heads": {"$ref": "#/$defs/count"},
        "head_dim": {"$ref": "#/$defs/count"},
        "v_head_dim": {"$ref": "#/$defs/count"},
        "softcap": {"$ref": "#/$defs/number0"},
        "density": {"$ref": "#/$defs/number0"},
        "kernel_ms": {"$ref": "#/$defs/number0"},
        "plain_ms": {"$ref": "#/$defs/number0"},
        "plain": {"enum": ["worklist", "chunked", "dense"]},
        "verdict": {"enum": ["promote", "experimental", "delete"]},
        "why": {"type": "string"}
      },
      "required": [
        "kernel", "lane", "machine", "class", "mask", "direction", "dtype", "q_len", "kv_len", "heads",
        "kv_heads", "head_dim", "v_head_dim", "softcap", "density", "kernel_ms", "plain_ms", "plain",
        "verdict", "why"
      ],
      "additionalProperties": false
    }
  }
}
)json";
// clang-format on

}  // namespace

std::string_view receipt_schema() { return kSchema; }

}  // namespace tessera
