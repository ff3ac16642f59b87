// model/checkpoint_test.cc: a file that changed since it was written is
// refused.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::model {
namespace {

struct Written {
  ModelConfig model;
  std::vector<ModelParameter> parameters;
  TrainState state;
  std::string bytes;
};

Written written() {
  Written out;
  out.model.vocab = 16;
  out.model.layers = 1;
  out.model.width = 8;
  out.model.heads = out.model.kv_heads = 1;
  out.model.head_dim = 8;
  out.model.mlp_width = 8;
  out.parameters = *model_parameters(out.model, *find_layer_spec("reference"));
  std::mt19937 rng(1);
  std::normal_distribution<float> draw;
  for (auto& values : out.state.values) {
    for (const ModelParameter& p : out.parameters) {
      values.emplace_back(static_cast<size_t>(p.size()));
      for (float& v : values.back()) v = draw(rng);
    }
  }
  out.state.step = 3;
  out.bytes = *write_checkpoint(out.model, {}, {}, out.parameters, out.state);
  return out;
}

TEST(Checkpoint, GivesWhatWasWritten) {
  const Written w = written();
  auto back = read_checkpoint(w.bytes, w.model, w.parameters);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->step, 3);
  EXPECT_EQ(back->values, w.state.values);
}

// Any bit of any array, and any change of length.
TEST(Checkpoint, OfWhichABitChangedIsRefused) {
  const Written w = written();
  auto parsed = parse_safetensors(w.bytes);
  ASSERT_TRUE(parsed);
  int64_t of_arrays = 0;
  for (const auto& [name, t] : parsed->tensors) {
    of_arrays += static_cast<int64_t>(t.bytes.size());
  }
  const size_t first = w.bytes.size() - static_cast<size_t>(of_arrays);
  std::mt19937 rng(2);
  for (int i = 0; i < 200; ++i) {
    std::string bad = w.bytes;
    const size_t at =
        i < 2 ? (i == 0 ? first : bad.size() - 1)
              : std::uniform_int_distribution(first, bad.size() - 1)(rng);
    bad[at] = static_cast<char>(bad[at] ^ (1 << (rng() % 8)));
    auto found = read_checkpoint(bad, w.model, w.parameters);
    ASSERT_FALSE(found) << at;
    EXPECT_NE(found.error().message.find(
                  "[checkpoint] the digest of the arrays must be what "
                  "'digest' in the metadata says"),
              std::string::npos)
        << found.error().message;
    auto file = parse_safetensors(bad);
    ASSERT_TRUE(file);
    EXPECT_FALSE(read_parameters(*file, w.parameters));
  }
  for (size_t size = 0; size < w.bytes.size(); size += 37) {
    EXPECT_FALSE(read_checkpoint(std::string_view(w.bytes).substr(0, size),
                                 w.model, w.parameters))
        << size;
  }
}

// Errors in the bytes, and errors in what they say.
TEST(Checkpoint, ThatIsRefusedIsCalledByItsName) {
  const Written w = written();
  const auto said = [&](std::string_view bytes, std::string_view name) {
    return read_checkpoint(bytes, w.model, w.parameters, name).error().message;
  };
  const std::string cut =
      "[safetensors] a file must start with its header's length, found 3 bytes "
      "for at least 8";
  EXPECT_EQ(said("abc", "a.safetensors"), cut + " (in 'a.safetensors')");
  EXPECT_EQ(said("abc", ""), cut);
  std::string bad = w.bytes;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  EXPECT_TRUE(said(bad, "a.safetensors").ends_with("' (in 'a.safetensors')"))
      << said(bad, "a.safetensors");

  auto file = parse_safetensors(w.bytes);
  ASSERT_TRUE(file);
  file->metadata.erase(std::string(kModelName));
  const std::string of_none = *write_safetensors(*file);
  for (const std::string& message :
       {checkpoint_model(of_none, "b").error().message,
        checkpoint_model("abc", "b").error().message,
        export_hugging_face(of_none, "b").error().message}) {
    EXPECT_TRUE(message.ends_with(" (in 'b')")) << message;
  }
}

// The digest covers names, since swapped arrays have the same numbers.
TEST(Checkpoint, OfWhichTwoArraysChangedPlacesIsRefused) {
  const Written w = written();
  auto file = parse_safetensors(w.bytes);
  ASSERT_TRUE(file);
  const auto name = [&](size_t kind) {
    return std::string(kStateNames[kind]) + w.parameters[0].name;
  };
  std::swap(file->tensors.at(name(0)), file->tensors.at(name(1)));
  EXPECT_FALSE(
      read_checkpoint(*write_safetensors(*file), w.model, w.parameters));
}

// Another step or model would otherwise be trained from unnoticed.
TEST(Checkpoint, OfWhichABitOfTheMetadataChangedIsRefused) {
  const Written w = written();
  const auto original = parse_safetensors(w.bytes);
  ASSERT_TRUE(original);
  int flips = 0;
  for (const auto& [name, value] : original->metadata) {
    if (name == kMetadataDigestName) continue;  // without it none is checked
    for (size_t at = 0; at < name.size() + value.size(); ++at) {
      auto file = parse_safetensors(w.bytes);
      std::string other_name = name, other = value;
      char& byte = at < name.size() ? other_name[at] : other[at - name.size()];
      byte = static_cast<char>(byte ^ 1);
      file->metadata.erase(name);
      file->metadata[other_name] = other;
      const auto back =
          read_checkpoint(*write_safetensors(*file), w.model, w.parameters);
      ASSERT_FALSE(back) << name << ", byte " << at;
      EXPECT_TRUE(back.error().message.starts_with("[checkpoint] "));
      ++flips;
    }
  }
  EXPECT_GT(flips, 100);
}

// Older files have no digest of metadata.
TEST(Checkpoint, WithoutADigestOfMetadataIsTakenAsItIs) {
  const Written w = written();
  auto file = parse_safetensors(w.bytes);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->metadata.erase(std::string(kMetadataDigestName)), 1U);
  auto back = read_checkpoint(*write_safetensors(*file), w.model, w.parameters);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->step, w.state.step);
}

// The file is untrusted, and training counts on from its step.
TEST(Checkpoint, OfAStepBeyondCountingIsRefused) {
  const Written w = written();
  auto file = parse_safetensors(w.bytes);
  ASSERT_TRUE(file);
  file->metadata.erase(std::string(kMetadataDigestName));
  for (const char* step : {"9223372036854775807", "281474976710657", "-1",
                           "1.5", "99999999999999999999"}) {
    file->metadata["step"] = step;
    auto back =
        read_checkpoint(*write_safetensors(*file), w.model, w.parameters);
    ASSERT_FALSE(back) << step;
    EXPECT_EQ(back.error().message,
              std::string("[checkpoint] moments must come with their step, 0 "
                          "to 281474976710656, found '") +
                  step + "'");
  }
  file->metadata["step"] = "281474976710656";
  EXPECT_TRUE(
      read_checkpoint(*write_safetensors(*file), w.model, w.parameters));
}

TEST(Checkpoint, WithoutADigestIsTakenAsItIs) {
  const Written w = written();
  auto file = parse_safetensors(w.bytes);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->metadata.erase(std::string(kDigestName)), 1U);
  auto back = read_checkpoint(*write_safetensors(*file), w.model, w.parameters);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->values, w.state.values);
}

}  // namespace
}  // namespace tessera::model
