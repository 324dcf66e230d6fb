// volpipe devices: what can be used, and why not where it cannot.
#include <cstdio>
#include <iostream>

#include "command.h"
#include "device/context.h"
#include "pipeline/report.h"
#include "settings.h"

namespace volpipe::app {
namespace {

Json to_json(const DeviceInfo& info) {
  Json entry = {{"device", info.device.name()}, {"name", info.name}, {"usable", info.usable}};
  entry["memory_bytes"] = info.memory_bytes;
  entry["detail"] = info.detail;
  entry["reason"] = info.reason.empty() ? Json(nullptr) : Json(info.reason);
  return entry;
}

void print(const DeviceInfo& info) {
  if (info.usable)
    std::printf("%-8s %s, %s, %s\n", info.device.name().c_str(), info.name.c_str(), info.detail.c_str(),
                human_bytes(info.memory_bytes).c_str());
  else std::printf("%-8s not usable: %s\n", info.device.name().c_str(), info.reason.c_str());
}

}  // namespace

Command add_devices(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand("devices", "List the devices that can be used, and why others cannot");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as JSON");
  return [json] {
    Json list = Json::array();
    for (const DeviceInfo& info : list_devices()) {
      if (*json) list.push_back(to_json(info));
      else print(info);
    }
    if (*json) std::cout << Json{{"devices", list}}.dump(2) << "\n";
    return kSuccess;
  };
}

}  // namespace volpipe::app
