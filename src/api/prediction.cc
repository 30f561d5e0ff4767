// Predictions as JSON text.

#include "tuning/prediction/prediction.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "api/handle.h"
#include "api/topology_request.h"
#include "base/json_fields.h"
#include "base/wrong.h"
#include "tuning/cost_model_json.h"
#include "tuning/profile.h"

namespace paceline::api {
namespace {

using nlohmann::json;

// The fields of a request, which are checked for their types and taken out; what is left is unknown.
class Fields {
 public:
  explicit Fields(json object) : object_(std::move(object)) {}

  Status text(const char* key, std::string& into) {
    return take(
        key, [&](const json& value) { return value.is_string() && (into = value.get<std::string>(), true); }, "a text");
  }
  Status yes(const char* key, bool& into) {
    return take(
        key, [&](const json& value) { return value.is_boolean() && (into = value.get<bool>(), true); },
        "true or false");
  }
  template <class Number>
  Status whole(const char* key, Number& into) {
    return take(
        key,
        [&](const json& value) {
          if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<Number>::max()) return false;
          into = value.get<Number>();
          return true;
        },
        fmt::format("a whole number from 0 to {}", std::numeric_limits<Number>::max()));
  }
  // Of what is larger no times can be told.
  Status number(const char* key, double& into, double least, double unit = 1) {
    constexpr double most = 1e9;
    return take(
        key,
        [&](const json& value) {
          if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most)) return false;
          into = value.get<double>() * unit;
          return true;
        },
        fmt::format("a number from {} to {}", least, most));
  }
  template <class Fits>
  Status take(const char* key, Fits fits, std::string_view what) {
    if (!object_.contains(key)) return {};
    const json value = object_[key];
    object_.erase(key);
    return fits(value) ? Status() : wrong(fmt::format("{} must be {}, not {}", key, what, value.dump()));
  }
  void drop(std::initializer_list<const char*> keys) {
    for (const char* key : keys) object_.erase(key);
  }
  [[nodiscard]] Status nothing_left() const {
    return object_.empty() ? Status() : wrong(fmt::format("a request has no field '{}'", object_.begin().key()));
  }

 private:
  json object_;
};

// "slow_gpus": {"3": 2.5}; "slow_links": {"gpu0 -> switch0": 2}.
Status slow(const json& object, const Topology& topology, Machine& machine) {
  const json gpus = object.value("slow_gpus", json::object());
  const json links = object.value("slow_links", json::object());
  for (const auto& [key, factor] : gpus.items()) {
    if (!factor.is_number() || key.empty() || key.size() > 8 ||
        key.find_first_not_of("0123456789") != std::string::npos)
      return wrong(fmt::format("slow_gpus must be GPUs' numbers and factors, not \"{}\": {}", key, factor.dump()));
    machine.slow_gpus[std::stoi(key)] = factor.get<double>();
  }
  for (const auto& [key, factor] : links.items()) {
    bool found = false;
    for (std::size_t l = 0; l < topology.links().size(); ++l) {
      const Link& link = topology.links()[l];
      if (key != fmt::format("{} -> {}", topology.vertex(link.from).name, topology.vertex(link.to).name)) continue;
      if (!factor.is_number()) return wrong(fmt::format("slow_links must have factors, not {}", factor.dump()));
      machine.slow_links[static_cast<int>(l)] = factor.get<double>();
      found = true;
    }
    if (!found) return wrong(fmt::format("there is no link '{}'", key));
  }
  return {};
}

Status read_machine(const json& request, Machine& machine) {
  if (!request.contains("machine")) return {};
  if (!request["machine"].is_object()) return wrong("machine must be an object");
  Fields fields(request["machine"]);
  constexpr double least_gbs = 1e-6;  // as of a link
  PACE_TRY(fields.number("start_us", machine.start, 0));
  PACE_TRY(fields.number("delay_us", machine.delay, 0));
  PACE_TRY(fields.number("step_us", machine.step, 0));
  PACE_TRY(fields.number("send_gbs", machine.send_bandwidth, least_gbs, 1000));
  PACE_TRY(fields.number("take_gbs", machine.take_bandwidth, least_gbs, 1000));
  PACE_TRY(fields.number("reduce_gbs", machine.reduce_bandwidth, least_gbs, 1000));
  PACE_TRY(fields.number("copy_gbs", machine.copy_bandwidth, least_gbs, 1000));
  PACE_TRY(fields.yes("multicast", machine.multicast));
  std::string ports = machine.ports == Ports::one ? "one" : "connections";
  PACE_TRY(fields.text("ports", ports));
  if (ports != "one" && ports != "connections")
    return wrong(fmt::format("ports must be one or connections, not {}", ports));
  machine.ports = ports == "one" ? Ports::one : Ports::connections;
  fields.drop({"slow_gpus", "slow_links"});
  return fields.nothing_left();
}

Status read_question(const json& request, Question& question, int& ranks) {
  Fields fields(request);
  std::string collective;
  std::string dtype = "float32";
  PACE_TRY(fields.text("collective", collective));
  PACE_TRY(fields.text("dtype", dtype));
  PACE_TRY(fields.text("algorithm", question.algorithm));
  PACE_TRY(fields.whole("root", question.root));
  PACE_TRY(fields.whole("chunk_bytes", question.chunk_bytes));
  PACE_TRY(fields.whole("radix", question.radix));
  PACE_TRY(fields.whole("sources", question.sources));
  PACE_TRY(fields.whole("servers", question.servers));
  PACE_TRY(fields.whole("ranks", ranks));
  PACE_TRY(fields.yes("links", question.with_links));
  PACE_TRY(fields.yes("detail", question.in_detail));
  PACE_TRY(fields.take(
      "sizes",
      [&](const json& value) {
        if (!value.is_array()) return false;
        for (const json& size : value) {
          if (!size.is_number_integer() || size < 0) return false;
          question.sizes.push_back(size.get<std::size_t>());
        }
        return true;
      },
      "a list of whole numbers >= 0"));
  fields.drop({"preset", "nodes", "file", "nccl_xml", "gpus", "placement", "model", "profile", "transport", "machine"});
  PACE_TRY(fields.nothing_left());
  const auto which = collective_named(collective);
  if (!which || is_message(*which)) return wrong(fmt::format("there is no collective '{}'", collective));
  question.collective = *which;
  const auto type = data_type_named(dtype);
  if (!type) return wrong(fmt::format("there is no data type '{}'", dtype));
  question.element_bytes = size_of(*type);
  return {};
}

// What is known about n ranks: "model", or what "profile" has for "transport" (the first that there is) and the number
// of ranks nearest to n, or between the two nearest.
struct Known {
  CostModel model;
  std::shared_ptr<const Tuned> tuned;
};
Result<Known> known_of(const json& request, int ranks) {
  if (request.contains("model")) {
    auto model = read_cost_model(request["model"]);
    PACE_TRY(model.status());
    return Known{std::move(*model), nullptr};
  }
  if (!request["profile"].is_string()) return wrong("profile must be a text");
  const auto profile = read_profile(request["profile"].get<std::string>());
  PACE_TRY(profile.status());
  const json transport = request.value("transport", json());
  const Setting* best = nullptr;
  for (const Setting& setting : profile->settings) {
    if (!transport.is_null() && transport != setting.transport) continue;
    if (best != nullptr && transport.is_null() && setting.transport != best->transport) continue;
    if (best == nullptr || std::abs(setting.ranks - ranks) < std::abs(best->ranks - ranks)) best = &setting;
  }
  if (best == nullptr) return wrong(fmt::format("the profile has no setting for transport {}", transport.dump()));
  auto tuned = Tuned::of(*profile, best->transport, ranks, best->model.node_ranks);
  return Known{tuned->model(best->model), std::move(tuned)};
}

json links_of(const Prediction& row) {
  if (!row.links) return {};
  json links = json::array();
  for (const LinkLoad& load : *row.links)
    links.push_back(
        {{"from", load.from}, {"to", load.to}, {"gbs", load.gbs}, {"bytes", load.bytes}, {"share", load.share}});
  return links;
}

json rows_of(const Answer& answer, bool with_links) {
  json rows = json::array();
  for (const Prediction& row : answer.rows) {
    rows.push_back({{"algorithm", row.algorithm},
                    {"asked_bytes", row.asked_bytes},
                    {"bytes", row.bytes},
                    {"count", row.count},
                    {"chunk_bytes", row.chunk_bytes},
                    {"radix", row.radix},
                    {"own_chunk_bytes", row.own_chunk_bytes == 0 ? json() : json(row.own_chunk_bytes)},
                    {"time_us", row.time_us},
                    {"algbw_gbs", row.algbw_gbs},
                    {"busbw_gbs", row.busbw_gbs},
                    {"method", row.method},
                    {"busiest_link", row.busiest_link.empty() ? json() : json(row.busiest_link)},
                    {"busiest_share", row.busiest_share}});
    if (with_links) rows.back()["links"] = links_of(row);
  }
  return rows;
}

Result<std::string> answer_to(const char* text) {
  const json request = parse_object(text);
  if (request.is_discarded()) return wrong("the request is no JSON object");
  Question question;
  question.machine = typical_machine();
  int ranks = 0;
  PACE_TRY(read_question(request, question, ranks));
  PACE_TRY(read_machine(request, question.machine));
  json reply;
  Answer answer;
  if (request.contains("model") || request.contains("profile")) {
    const auto known = known_of(request, ranks);
    PACE_TRY(known.status());
    auto found = predict(known->model, ranks, question, known->tuned.get());
    PACE_TRY(found.status());
    answer = std::move(*found);
  } else {
    auto topology = topology_of(request);
    PACE_TRY(topology.status());
    if (request.contains("machine")) {
      PACE_TRY(slow(request["machine"], *topology, question.machine));
      question.timed = request["machine"].contains("start_us") || request["machine"].contains("delay_us");
    }
    auto gpus = gpus_of(request, *topology);
    PACE_TRY(gpus.status());
    if (request.contains("ranks")) {
      if (ranks < 1 || ranks > static_cast<int>(gpus->size()))
        return wrong(fmt::format("{} ranks: there are {} GPUs", ranks, gpus->size()));
      gpus->resize(static_cast<std::size_t>(ranks));
    }
    question.gpus = std::move(*gpus);
    ranks = static_cast<int>(question.gpus.size());
    auto found = predict(*topology, question);
    PACE_TRY(found.status());
    answer = std::move(*found);
  }
  reply["collective"] = name(question.collective);
  reply["ranks"] = ranks;
  reply["rows"] = rows_of(answer, question.with_links || question.in_detail);
  reply["left_out"] = answer.left_out;
  if (question.in_detail && !answer.traffic.empty())
    reply["trace"] = json::parse(chrome_trace(answer.simulation.timeline, answer.traffic));
  return reply.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" paceResult_t pacePredict(const char* request, const char** answer) {
  return give_answer<answer_to>(request, answer);
}
