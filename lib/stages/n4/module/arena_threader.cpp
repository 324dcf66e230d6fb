#include "stages/n4/module/arena_threader.h"

#include <itkMultiThreaderBase.h>
#include <itkObjectFactoryBase.h>
#include <itkVersion.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace volpipe {

namespace {

constexpr itk::ThreadIdType kParts = 16;

thread_local const HostThreads* threads_of_this_thread = nullptr;

/// Work units of a filter as pieces of HostThreads::parallel().
class ArenaThreader final : public itk::MultiThreaderBase {
 public:
  using Self = ArenaThreader;
  using Pointer = itk::SmartPointer<Self>;
  itkFactorylessNewMacro(Self);
  itkTypeMacro(ArenaThreader, MultiThreaderBase);

  void SetSingleMethod(itk::ThreadFunctionType method, void* data) override {
    m_SingleMethod = std::move(method);
    m_SingleData = data;
  }

  void SingleMethodExecute() override {
    std::vector<WorkUnitInfo> units(m_NumberOfWorkUnits);
    for (itk::ThreadIdType i = 0; i < m_NumberOfWorkUnits; ++i) {
      units[i].WorkUnitID = i;
      units[i].NumberOfWorkUnits = m_NumberOfWorkUnits;
      units[i].UserData = m_SingleData;
    }
    threads_.parallel(std::int64_t(units.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) m_SingleMethod(&units[std::size_t(i)]);
    });
  }

 protected:
  ArenaThreader() : threads_(*threads_of_this_thread) {
    m_NumberOfWorkUnits = kParts;
    m_MaximumNumberOfThreads = itk::ThreadIdType(threads_.count());
  }

 private:
  const HostThreads& threads_;
};

/// Makes ArenaThreaders where ItkThreads is in force.
class ThreaderFactory final : public itk::ObjectFactoryBase {
 public:
  using Self = ThreaderFactory;
  using Pointer = itk::SmartPointer<Self>;
  itkFactorylessNewMacro(Self);
  itkTypeMacro(ThreaderFactory, ObjectFactoryBase);

  const char* GetITKSourceVersion() const override { return ITK_SOURCE_VERSION; }
  const char* GetDescription() const override { return "Filters on the host threads of volpipe"; }

 protected:
  itk::LightObject::Pointer CreateObject(const char* name) override {
    if (!threads_of_this_thread || std::strcmp(name, typeid(itk::MultiThreaderBase).name()) != 0) return nullptr;
    return ArenaThreader::New().GetPointer();
  }
};

}  // namespace

ItkThreads::ItkThreads(const HostThreads& threads) {
  static std::once_flag registered;
  std::call_once(registered, [] { itk::ObjectFactoryBase::RegisterFactory(ThreaderFactory::New()); });
  threads_of_this_thread = &threads;
}

ItkThreads::~ItkThreads() { threads_of_this_thread = nullptr; }

}  // namespace volpipe
