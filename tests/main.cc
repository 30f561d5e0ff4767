#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "bootstrap/launch.h"
#include "bootstrap/threads.h"

namespace {

// A unique id that a test has not used has a thread that waits for its rank 0. It ends with the test: the next one may
// fork, beside which a sanitizer wants no other thread.
struct ForgetsIds : doctest::IReporter {
  explicit ForgetsIds(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override { threads_ = paceline::testing::living_threads(); }
  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    if (paceline::forget_unused_ids() > 0) (void)paceline::testing::threads_are_back_to(threads_);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  int threads_ = 0;
};
REGISTER_LISTENER("forgets ids", 1, ForgetsIds);

}  // namespace
