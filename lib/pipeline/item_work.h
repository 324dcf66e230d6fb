// An item on its way through a run.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/file_cache.h"
#include "pipeline/item_steps.h"
#include "pipeline/memory_budget.h"

namespace volpipe {

inline ItemRecord record_of(const Item& item) {
  ItemRecord record;
  record.id = item.id;
  record.repeat = item.repeat;
  return record;
}

struct ItemWork {
  std::size_t index;  ///< among the run's items
  const Item& item;
  ItemFiles files;
  ItemRecord record;
  Json origins{};
  ItemKey key{};
  Plan plan{};
  Images images{};  ///< as read, then as computed; on the host
  MemoryBudget::Share memory{};
  double start_ms = host_clock_ms();

  ItemWork(std::size_t place, const Item& the_item, FileCache& cache)
      : index(place), item(the_item), files(cache, the_item), record(record_of(the_item)) {}
};

}  // namespace volpipe
