#include "played_json.hpp"

namespace halotap::apps {

nlohmann::ordered_json played_json(const io::PlayedCounters& played) {
  nlohmann::ordered_json json = {{"frames_in", played.frames_in},
                                 {"frames_played", played.frames_played},
                                 {"frames_dropped", played.frames_dropped},
                                 {"frames_discarded", played.frames_discarded},
                                 {"frames_silent", played.frames_silent},
                                 {"underruns", played.underruns},
                                 {"device_underruns", played.device_underruns}};
  if (played.corrects_drift != 0) {
    json["drift"] = {{"correction_ppm", played.correction_ppm},
                     {"frames_added", played.frames_added},
                     {"frames_removed", played.frames_removed},
                     {"samples_zeroed", played.samples_zeroed}};
  }
  return json;
}

}  // namespace halotap::apps
