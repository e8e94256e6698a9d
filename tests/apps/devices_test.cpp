#include <gtest/gtest.h>
#include <stdlib.h>

#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

// Runs `halotap devices` where ALSA knows what `configuration` says and nothing else, and no JACK server is started.
Outcome run_devices(const std::string& configuration, const std::vector<std::string>& options) {
  const test::ScratchFolder folder;
  setenv("ALSA_CONFIG_PATH", folder.write("asound.conf", configuration).c_str(), 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
  std::vector<std::string> arguments{"devices"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_halotap(arguments);
}

bool has_sound_devices(const nlohmann::json& result) {
  return !result["problem"].is_string() || result["problem"].get<std::string>().find("this build") != 0;
}

TEST(Devices, SaysInOneLineThatThereIsNoSoundDevice) {
  const Outcome outcome = run_devices("pcm.card { type hw card 31 hint.show on }\n", {});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.find("sound    "), 0U) << outcome.out;
  EXPECT_EQ(outcome.out.find("\nsound"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\ncompute  cpu ("), std::string::npos) << outcome.out;
}

TEST(Devices, GivesDevicesAndBackendsAsOneJsonObject) {
  const Outcome outcome = run_devices("pcm.!default { type null }\npcm.quiet { type null hint.show on }\n", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const nlohmann::json result = outcome.json();
  ASSERT_EQ(result["backends"].size(), 2U);
  EXPECT_EQ(result["backends"][0]["backend"], "cpu");
  EXPECT_EQ(result["backends"][1]["backend"], "cuda");
  for (const auto& backend : result["backends"]) EXPECT_NE(backend["device"].is_null(), backend["problem"].is_null());
  if (!has_sound_devices(result)) GTEST_SKIP() << "this build has no PortAudio";
  EXPECT_TRUE(result["problem"].is_null()) << result["problem"];
  int defaults = 0;
  bool quiet_found = false;
  for (const auto& device : result["devices"]) {
    EXPECT_EQ(device["host"], "ALSA");
    EXPECT_GT(device["default_rate_hz"], 0);
    for (const char* direction : {"input", "output"}) {
      EXPECT_GT(device[direction]["channels"], 0);
      EXPECT_TRUE(device[direction]["problem"].is_null());
      EXPECT_LE(device[direction]["low_latency_ms"], device[direction]["high_latency_ms"]);
    }
    defaults += device["input"]["default"] ? 1 : 0;
    quiet_found = quiet_found || device["name"] == "quiet";
  }
  EXPECT_EQ(defaults, 1);
  EXPECT_TRUE(quiet_found);
}

}  // namespace
}  // namespace halotap::apps
