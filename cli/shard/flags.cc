// cli/shard/flags.cc: names and help of the flags, and options from them.
#include "cli/shard/flags.h"

#include <utility>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/text.h"
#include "cli/compile/kernel_flags.h"
#include "cli/given_flags.h"
#include "cli/lowering.h"
#include "cli/request/file_checks.h"
#include "request/numbers.h"

namespace tessera::cli {
void add_shard_flags(Command& command, ShardFlags& f) {
  add_request_flags(command, f.request);
  add_flags(
      command,
      {
          {"--mesh", &f.mesh, "AXES",
           "Axes as name=size,...: data spreads batch rows, head spreads "
           "heads, seq spreads query rows, and along copy all devices hold the "
           "same; cp:seq=4 is a seq axis named cp"},
          {"--balance", &f.balance, "NAME",
           "How query rows are spread: contiguous, headtail, rows (they lie "
           "where work is even) or tasks (rows stay, attention moves) [rows]"},
          {"--exchange", &f.exchange, "NAME",
           "How keys and values travel: rounds (tiles, in static sizes), "
           "ragged (no more tiles than needed, on TPUs), gather (all K and V "
           "go to all) or auto (rounds, or gather where rounds would send as "
           "much; ragged for a TPU, which --target, --fit, --compile or --lane "
           "mosaic asks for) [rounds]"},
          {"--ceilings", &f.ceilings, "TEXT",
           "Limits of a shard, as `ceilings` of the report has them "
           "(rows=16,steps=128,kv=6:12:8), so that all batches are one "
           "contract; more is an error [the bucket of the batch]"},
          {"--work", &f.work, "TEXT",
           "Weight of a tile where work is spread, 1 to 1048576, by its class "
           "[partial=1,full=1]"},
          {"--evenness", &f.evenness, "TEXT",
           "With --balance rows or tasks: the most that a shard may have, as a "
           "multiple of the mean, 1 to 1000; where it is more, less may have "
           "to travel "
           "[work=1.05,tokens=1.02]"},
          {"--heads", &f.heads, "N", "Query heads [8]"},
          {"--kv-heads", &f.kv_heads, "N",
           "Key and value heads [a quarter of heads, or heads]"},
          {"--head-dim", &f.head_dim, "N",
           "Dimension of queries and keys [128]"},
          {"--v-head-dim", &f.v_head_dim, "N",
           "Dimension of values [head-dim]"},
          {"--dtype", &f.dtype, "NAME", "f32, bf16 or f16 [bf16]"},
          {"--uneven", &f.uneven, "",
           "Pad batch rows and KV heads that an axis does not divide"},
          {"--emit", &f.emit, "FILE",
           "Write the program of all shards, StableHLO, for `tessera compile` "
           "and any compiler with Shardy"},
          {"--lane", &f.lane, "NAME",
           "Lane that attends on each device of the program: xla, or mosaic, "
           "our TPU kernel [xla]"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--numbers", &f.numbers, "WHICH", kNumbersHelp},
          {"--row-sum", &f.row_sum, "SUM", kRowSumHelp},
          {"--query-chunk", &f.query_chunk, "N",
           "With --lane mosaic --backward: queries whose dQ a device's vector "
           "memory holds at a time, whole tiles [all, where they fit]"},
          {"--backward", &f.backward, "",
           "Make the program of the backward pass"},
          {"--sink-logits", &f.sink_logits, "",
           "Make a program that takes one more logit for each head"},
          {"--dlse", &f.dlse, "",
           "With --backward: take the gradient of the log-sum-exp too"},
          {"--fit", &f.fit, "CHIP",
           "Report what the program takes of a chip's memory, before launch; "
           "v6e and the like"},
          {"--compile", &f.compile, "TARGET",
           "Report the same, and compile the program for a target of as many "
           "chips, v6e:2x2 and the like, with no device: what libtpu says of "
           "its memory, and what runs beside its collectives"},
          {"--picture", &f.picture, "FILE.svg",
           "Draw who holds and computes what, and what travels"},
      });
}

Result<void> check_flags(const ShardFlags& f) {
  if (!f.mesh) return invalid("cli", "--mesh must be given, found none");
  if (f.lane && *f.lane != "xla" && *f.lane != "mosaic") {
    return invalid("cli", "--lane must be xla or mosaic, found {}",
                   in_quotes(*f.lane));
  }
  const auto of_program = first_given({{"--backward", f.backward},
                                       {"--sink-logits", f.sink_logits},
                                       {"--dlse", f.dlse},
                                       {"--lane", f.lane.has_value()}});
  if (!of_program.empty() && !f.emit && !f.fit && !f.compile) {
    return invalid("cli", "{} goes with --emit, --fit or --compile, found none",
                   of_program);
  }
  if (f.dlse && !f.backward) {
    return invalid("cli", "--dlse goes with --backward, found none");
  }
  // Without --fit or --compile, a program of lane xla is not made for one chip.
  if (f.lowering_reason && f.lane != "mosaic" && !f.fit && !f.compile) {
    return invalid("cli",
                   "--lowering-reason goes with --lane mosaic, --fit or "
                   "--compile, found none");
  }
  if (auto e = check_reason_flag(f.lowering_reason); !e) return e;
  const auto of_mosaic =
      first_given({{"--numbers", f.numbers.has_value()},
                   {"--row-sum", f.row_sum.has_value()},
                   {"--query-chunk", f.query_chunk.has_value()}});
  if (!of_mosaic.empty() && f.lane != "mosaic") {
    return invalid("cli", "{} goes with --lane mosaic, found {}", of_mosaic,
                   f.lane ? *f.lane : "none");
  }
  if (f.query_chunk && !f.backward) {
    return invalid("cli", "--query-chunk goes with --backward, found it alone");
  }
  if (f.fit && f.compile) {
    return invalid("cli",
                   "--compile says what fits too, found --fit beside it");
  }
  if (f.picture) {
    if (auto e = check_ending({"--picture", *f.picture}, ".svg"); !e) return e;
  }
  return check_files(request_files(f.request),
                     given_files({&f.emit, &f.picture}));
}

Result<ShardOptions> shard_options(const ShardFlags& f) {
  auto options = parse_shard_options(f.words());
  if (!options) return options.error();
  ShardOptions out = std::move(*options);
  const std::string word = f.dtype.value_or("bf16");
  const std::optional<Dtype> dtype = attention_dtype(word);
  if (!dtype) {
    return invalid("cli", "--dtype must be f32, bf16 or f16, found {}",
                   in_quotes(word));
  }
  out.dtype = *dtype;
  out.dlse = f.dlse;
  AttentionShape& s = out.shape;
  auto heads =
      request::parse_int(f.heads.value_or("8"), "--heads", 1, kMaxHeads);
  if (!heads) return heads.error();
  s.heads = *heads;
  s.kv_heads = *heads % 4 == 0 ? *heads / 4 : *heads;
  if (f.kv_heads) {
    auto n = request::parse_int(*f.kv_heads, "--kv-heads", 1, kMaxHeads);
    if (!n) return n.error();
    s.kv_heads = *n;
  }
  auto dim = request::parse_int(f.head_dim.value_or("128"), "--head-dim", 1,
                                kMaxHeadDim);
  if (!dim) return dim.error();
  s.head_dim = s.v_head_dim = *dim;
  if (f.v_head_dim) {
    auto n = request::parse_int(*f.v_head_dim, "--v-head-dim", 1, kMaxHeadDim);
    if (!n) return n.error();
    s.v_head_dim = *n;
  }
  return out;
}

}  // namespace tessera::cli
