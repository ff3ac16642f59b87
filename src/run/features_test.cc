// run/features_test.cc: tests that features have all that the call and its
// session ask of a lane.
#include "run/features.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::run {
namespace {

TEST(CallFeatures, AreThoseOfTheCall) {
  const CallFeatures plain = call_features({});
  EXPECT_EQ(plain.dtype, Dtype::f32);
  EXPECT_FALSE(plain.sink_logits || plain.backward || plain.sink_telemetry);
  EXPECT_FALSE(plain.compile_only || plain.bridge_artifact || plain.splash);
  EXPECT_EQ(plain.devices, 1);
  AttentionCall half;
  half.dtype = Dtype::bf16;
  EXPECT_EQ(call_features(half).dtype, Dtype::bf16);
  for (const auto& [asked, told] :
       {std::pair(&AttentionCall::sink_logits, &CallFeatures::sink_logits),
        {&AttentionCall::backward, &CallFeatures::backward},
        {&AttentionCall::sink_telemetry, &CallFeatures::sink_telemetry}}) {
    AttentionCall call;
    call.*asked = true;
    const CallFeatures found = call_features(call);
    EXPECT_TRUE(found.*told);
    EXPECT_EQ(found.sink_logits + found.backward + found.sink_telemetry, 1);
  }
}

TEST(CallFeatures, HaveTheArtifactAndTheMeshOfTheSession) {
  SessionOptions options;
  options.mesh = *parse_mesh("data=2,seq=4");
  options.artifact.emplace();
  options.artifact->spec.platforms = {"tpu"};
  EXPECT_EQ(call_features({}, options).devices, 8);
  EXPECT_EQ(call_features({}, options).numbers, Numbers::any);
  options.xla.numbers = Numbers::finite;
  EXPECT_EQ(call_features({}, options).numbers, Numbers::finite);
  EXPECT_TRUE(call_features({}, options).bridge_artifact);
  options.artifact->spec.splash.emplace();
  const CallFeatures splash = call_features({}, options);
  EXPECT_FALSE(splash.bridge_artifact);
  EXPECT_TRUE(splash.splash.has_value());
  EXPECT_EQ(splash.artifact_platforms, std::vector<std::string>{"tpu"});
}

}  // namespace
}  // namespace tessera::run
