// pjrt/execute.cc: compiles programs for a client's devices, loads and runs
// them.
#include "pjrt/execute.h"

#include <cstring>
#include <numeric>

#include "base/text.h"
#include "base/trace.h"
#include "pjrt/api.h"
#include "pjrt/element_type.h"
#include "pjrt/input_types.h"
#include "pjrt/memory_check.h"

namespace tessera::pjrt {
namespace {

constexpr std::string_view kWithConfig = "hlo_with_config";

// The types of the outputs.
Result<std::vector<ArrayType>> output_types(const Executable& executable) {
  auto count = executable.outputs();
  if (!count) return count.error();
  const Plugin& plugin = executable.plugin();
  const Purpose purpose = {"an executable must tell the types of its outputs",
                           plugin.path()};
  PJRT_Executable_OutputElementTypes_Args types = {};
  types.executable = executable.handle();
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Executable_OutputElementTypes, types,
                              purpose);
  if (!ok) return ok.error();
  PJRT_Executable_OutputDimensions_Args dims = {};
  dims.executable = executable.handle();
  ok = TESSERA_PJRT_CALL(plugin, PJRT_Executable_OutputDimensions, dims,
                         purpose);
  if (!ok) return ok.error();
  const auto outputs = static_cast<size_t>(*count);
  if (types.num_output_types != outputs || dims.num_outputs != outputs) {
    return invalid("pjrt", "{}, found {} and {} for {} outputs", purpose.rule,
                   types.num_output_types, dims.num_outputs, outputs);
  }
  std::vector<ArrayType> out(outputs);
  const int64_t* at = dims.dims;
  for (size_t i = 0; i < outputs; ++i) {
    int type = 0;  // a newer plugin's may be outside the enum
    std::memcpy(&type, types.output_types + i, sizeof type);
    const auto dtype = dtype_of(type);
    if (!dtype) {
      return invalid("pjrt",
                     "a program's outputs must be of BOOL, I8, I16, I32, I64, "
                     "U8, F16, BF16, F32 or F64, found PJRT's type {} for "
                     "output {}",
                     type, i);
    }
    out[i].dtype = *dtype;
    out[i].dims.assign(at, at + dims.dim_sizes[i]);
    at += dims.dim_sizes[i];
  }
  return out;
}

// Nothing if the plugin has no XLA program to show.
Result<std::optional<std::vector<ArrayType>>> find_inputs(
    const Executable& executable) {
  using Inputs = std::optional<std::vector<ArrayType>>;
  const Plugin& plugin = executable.plugin();
  const Purpose purpose = {"an executable must show its program",
                           plugin.path()};
  PJRT_Program program = {};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  PJRT_Executable_OptimizedProgram_Args args = {};
  args.executable = executable.handle();
  args.program = &program;
  // The first call gets the size.
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Executable_OptimizedProgram, args,
                              purpose);
  if (!ok || program.code_size == 0) return Inputs();
  std::string bytes(program.code_size, '\0');
  program.code = bytes.data();
  ok = TESSERA_PJRT_CALL(plugin, PJRT_Executable_OptimizedProgram, args,
                         purpose);
  if (!ok || program.code_size > bytes.size() || !program.format) {
    return Inputs();
  }
  bytes.resize(program.code_size);
  const std::string_view format(program.format, program.format_size);
  if (format != kWithConfig && format != "hlo") return Inputs();
  auto types = input_types(bytes, format == kWithConfig);
  if (!types) return types.error();
  return Inputs(std::move(*types));
}

// Checks the inputs of one device.
Result<void> check_inputs(const Loaded& program, const Device& device,
                          std::span<const Buffer* const> inputs) {
  const auto& types = program.inputs();
  if (types && types->size() != inputs.size()) {
    return invalid("pjrt", "a program must get its {} inputs, found {}",
                   types->size(), inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& input = *inputs[i];
    if (types && input.type() != (*types)[i]) {
      return invalid("pjrt", "an input must be {}, found {} for input {}",
                     describe((*types)[i]), describe(input.type()), i);
    }
    if (input.device() != device.handle) {
      return invalid("pjrt",
                     "an input must be on the program's device {}, found "
                     "another one for input {}",
                     describe(device), i);
    }
  }
  return {};
}

}  // namespace

template <>
void Destroyer<PJRT_LoadedExecutable>::operator()(
    PJRT_LoadedExecutable* object) const {
  PJRT_LoadedExecutable_Destroy_Args args = {};
  args.executable = object;
  (void)TESSERA_PJRT_CALL(*plugin, PJRT_LoadedExecutable_Destroy, args,
                          Purpose{"a program must be freed", "it"});
}

Result<Executable> Loaded::executable() const {
  const Plugin& plugin = client().plugin();
  const Purpose purpose = {"a loaded program must have an executable",
                           plugin.path()};
  PJRT_LoadedExecutable_GetExecutable_Args args = {};
  args.loaded_executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_LoadedExecutable_GetExecutable, args,
                              purpose);
  if (!ok) return ok.error();
  if (!args.executable) {
    return invalid("pjrt", "{}, found nothing for {}", purpose.rule,
                   purpose.subject);
  }
  Executable out;
  out.handle_ = {args.executable, {&plugin}};
  return out;
}

class LoadedMaker {
 public:
  // Takes `made`; null is an error of the call that made it.
  static Result<Loaded> make(const Client& client, const Devices& devices,
                             PJRT_LoadedExecutable* made,
                             const Purpose& purpose);
};

Result<Loaded> LoadedMaker::make(const Client& client, const Devices& devices,
                                 PJRT_LoadedExecutable* made,
                                 const Purpose& purpose) {
  if (!made) {
    return invalid("pjrt", "{}, found nothing for {}", purpose.rule,
                   purpose.subject);
  }
  Loaded out;
  out.client_ = &client;
  out.devices_ = devices;
  out.handle_ = {made, {&client.plugin()}};
  auto executable = out.executable();
  if (!executable) return executable.error();
  auto outputs = output_types(*executable);
  if (!outputs) return outputs.error();
  out.outputs_ = std::move(*outputs);
  auto inputs = find_inputs(*executable);
  if (!inputs) return inputs.error();
  out.inputs_ = std::move(*inputs);
  if (auto memory = executable->memory()) {
    out.run_bytes_ = memory->output + memory->temporary;
    out.given_bytes_ = memory->alias;
  }
  return out;
}

namespace {

CompileOptions options_for(const Client& client, const Devices& devices) {
  CompileOptions out;
  out.devices = devices.ids();
  out.partitions = static_cast<int64_t>(devices.size());
  out.use_spmd = out.use_shardy = devices.size() > 1;
  out.in_order = devices.size() > 1 && client.platform() == "cpu";
  return out;
}

// Checks the inputs of each device, and the memory for the outputs.
Result<void> check_run(const Loaded& program, std::span<const Inputs> inputs,
                       Reused reused) {
  const Devices& devices = program.devices();
  if (inputs.size() != devices.size()) {
    return invalid("pjrt",
                   "a program must get the inputs of its {} devices, found {}",
                   devices.size(), inputs.size());
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    if (auto ok = check_inputs(program, devices[d], inputs[d]); !ok) {
      return ok.error();
    }
    if (inputs[d].size() == inputs.front().size()) continue;
    return invalid("pjrt", "devices must get as many inputs, found {} and {}",
                   inputs.front().size(), inputs[d].size());
  }
  const int64_t given = reused == Reused::given ? program.given_bytes() : 0;
  const int64_t memory =
      (program.run_bytes() - given) * static_cast<int64_t>(devices.size());
  return check_memory(program.client(), memory,
                      "a run's outputs and scratch must fit in memory");
}

}  // namespace

Result<Loaded> compile(const Client& client, const Devices& devices,
                       std::string_view program) {
  TraceSpan span("pjrt", "compile");
  span.note("bytes", static_cast<int64_t>(program.size()));
  std::string code(program);
  PJRT_Program in = mlir_program(code);
  const std::string bytes = compile_options_bytes(options_for(client, devices));
  const std::string subject = describe(devices.front());
  const Purpose purpose = {"the program must compile", subject};
  PJRT_Client_Compile_Args args = {};
  args.client = client.handle();
  args.program = &in;
  args.compile_options = bytes.data();
  args.compile_options_size = bytes.size();
  auto ok =
      TESSERA_PJRT_CALL(client.plugin(), PJRT_Client_Compile, args, purpose);
  if (!ok) return ok.error();
  return LoadedMaker::make(client, devices, args.executable, purpose);
}

Result<Loaded> load(const Client& client, const Devices& devices,
                    std::string_view serialized) {
  if (serialized.empty()) {
    return invalid("pjrt", "a serialized program must have bytes, found none");
  }
  TraceSpan span("pjrt", "load");
  span.note("bytes", static_cast<int64_t>(serialized.size()));
  // Without options, the program would run on the devices it was compiled for.
  const std::string bytes = compile_options_bytes(options_for(client, devices));
  const std::string subject = describe(devices.front());
  const Purpose purpose = {"a serialized program must load", subject};
  PJRT_Executable_DeserializeAndLoad_Args args = {};
  args.client = client.handle();
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  args.overridden_serialized_compile_options = bytes.data();
  args.overridden_serialized_compile_options_size = bytes.size();
  auto ok = TESSERA_PJRT_CALL(
      client.plugin(), PJRT_Executable_DeserializeAndLoad, args, purpose);
  if (!ok) return ok.error();
  return LoadedMaker::make(client, devices, args.loaded_executable, purpose);
}

Result<std::vector<Buffer>> execute(const Loaded& program,
                                    std::span<const Buffer* const> inputs) {
  const Inputs one(inputs.begin(), inputs.end());
  auto out = execute_on_all(program, std::span(&one, 1));
  if (!out) return out.error();
  return std::move(out->front());
}

Result<std::vector<std::vector<Buffer>>> execute_on_all(
    const Loaded& program, std::span<const Inputs> inputs, Reused reused) {
  const TraceSpan span("pjrt", "execute");
  if (auto ok = check_run(program, inputs, reused); !ok) return ok.error();
  const Devices& devices = program.devices();
  const Plugin& plugin = program.client().plugin();
  const std::string subject = describe(program.device());
  const Purpose purpose = {"the program must run", subject};

  const size_t count = inputs.front().size();
  std::vector<std::vector<PJRT_Buffer*>> arguments(devices.size());
  std::vector<std::vector<PJRT_Buffer*>> results(devices.size());
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> result_lists;
  for (size_t d = 0; d < devices.size(); ++d) {
    for (const Buffer* input : inputs[d]) {
      arguments[d].push_back(input->handle());
    }
    results[d].resize(program.outputs().size());
    argument_lists.push_back(arguments[d].data());
    result_lists.push_back(results[d].data());
  }
  std::vector<int64_t> kept(reused == Reused::kept ? count : 0);
  std::iota(kept.begin(), kept.end(), int64_t{0});
  std::vector<PJRT_Event*> done(devices.size());

  PJRT_ExecuteOptions options = {};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  PJRT_LoadedExecutable_Execute_Args args = {};
  args.executable = program.handle();
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = devices.size();
  args.num_args = count;
  args.output_lists = result_lists.data();
  args.device_complete_events = done.data();
  auto ok =
      TESSERA_PJRT_CALL(plugin, PJRT_LoadedExecutable_Execute, args, purpose);
  if (!ok) return ok.error();

  // All buffers and events get owners before a wait may fail.
  std::vector<std::vector<Buffer>> out(devices.size());
  std::vector<Handle<PJRT_Event>> events;
  std::optional<size_t> missing;  // first device without all results
  for (size_t d = 0; d < devices.size(); ++d) {
    events.emplace_back(done[d], Destroyer<PJRT_Event>{&plugin});
    for (size_t i = 0; i < results[d].size(); ++i) {
      if (!results[d][i] && !missing) missing = d;
      out[d].emplace_back(program.outputs()[i], devices[d],
                          Handle<PJRT_Buffer>(results[d][i], {&plugin}));
    }
  }
  // Returns the first error, but only after all devices have stopped.
  Result<void> ended;
  for (size_t d = 0; d < devices.size(); ++d) {
    auto waited = await(events[d], purpose.rule, describe(devices[d]));
    if (!waited && ended) ended = std::move(waited);
  }
  if (!ended) return ended.error();
  if (missing) {
    return invalid("pjrt", "{}, found an output missing for {}", purpose.rule,
                   describe(devices[*missing]));
  }
  return out;
}

}  // namespace tessera::pjrt
