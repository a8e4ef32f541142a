// report FOLDER GPU COMMIT: writes the results of gpu-check as FOLDER/report.json and FOLDER/report.md.
#include "tests/gpu/report.h"

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 4) return std::cerr << "report FOLDER GPU COMMIT\n", 2;
  using namespace gradus::gpu_check;
  const fs::path folder(argv[1]);
  const Json report = report_of(folder, argv[2], argv[3]);
  std::ofstream json(folder / "report.json"), page(folder / "report.md");
  json << report.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";  // a log may have any bytes
  page << page_of(report);
  if (!json.flush() || !page.flush())
    return std::cerr << "report: " << folder << " cannot be written to\n", 1;
  std::cout << page_of(report);
}
