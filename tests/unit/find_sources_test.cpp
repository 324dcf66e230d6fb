#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "dicom_samples.h"
#include "io/io.h"

namespace volpipe::test {

namespace {

namespace fs = std::filesystem;
using io::Found;

/// Long enough to pass for a header; the search does not look inside.
std::string touch(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  return write_bytes(path, std::string(400, 'x'));
}

std::vector<std::string> outputs(const Found& found) {
  std::vector<std::string> names;
  for (const auto& source : found.sources) names.push_back(source.directory + "|" + source.stem);
  return names;
}

std::string passed_over(const Found& found) { return found.notices.empty() ? "" : found.notices.list()[0].message; }

TEST(FindSources, OneFile) {
  TemporaryFolder folder;
  const std::string path = touch(folder / "sub/a.b.NII.gz");
  const Found found = io::find_sources(path);
  ASSERT_EQ(found.sources.size(), 1u);
  EXPECT_EQ(found.sources[0].path, path);
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"|a.b"}));
  EXPECT_FALSE(found.sources[0].is_dicom());
}

TEST(FindSources, EveryExtensionInBytewiseOrder) {
  TemporaryFolder folder;
  for (const std::string name : {"z.nii", "B.Nii.Gz", "a/c.nrrd", "a/d.MHA", "a.nhdr", "é.mhd", "a/b/e.nii"})
    touch(folder / name);
  const Found found = io::find_sources(folder.path() + "/");
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"|B", "|a", "a/b|e", "a|c", "a|d", "|z", "|é"}));
  EXPECT_TRUE(found.notices.empty());
  EXPECT_TRUE(std::is_sorted(found.sources.begin(), found.sources.end(),
                             [](const auto& a, const auto& b) { return a.path < b.path; }));
}

TEST(FindSources, APairIsOneSource) {
  TemporaryFolder folder;
  touch(folder / "a.hdr");
  touch(folder / "a.img");
  touch(folder / "m.mhd");
  touch(folder / "m.raw");
  touch(folder / "n.nhdr");
  touch(folder / "n.raw.gz");
  touch(folder / "p.mhd");
  touch(folder / "p.zraw");
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"|a", "|m", "|n", "|p"}));
  EXPECT_TRUE(found.notices.empty()) << passed_over(found);
  EXPECT_EQ(io::find_sources(folder / "a.img").sources.at(0).path, folder / "a.hdr");
}

TEST(FindSources, AnImageWithoutHeaderIsAFault) {
  TemporaryFolder folder;
  touch(folder / "a.img");
  const Found found = io::find_sources(folder.path());
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_NE(found.faults[0].message.find(".hdr"), std::string::npos);
}

TEST(FindSources, HiddenAndForeignFilesAreCounted) {
  TemporaryFolder folder;
  touch(folder / "a.nii");
  touch(folder / ".DS_Store");
  touch(folder / "._a.nii");
  touch(folder / ".hidden/b.nii");
  touch(folder / "notes.txt");
  write_bytes(folder / "empty", "");
  EXPECT_EQ(passed_over(io::find_sources(folder.path())), "passed over 5 files that are not volumes");
  fs::remove_all(folder / ".hidden");
  for (const std::string name : {".DS_Store", "._a.nii", "empty"}) fs::remove(folder / name);
  EXPECT_EQ(passed_over(io::find_sources(folder.path())), "passed over 1 file that is not a volume");
}

TEST(FindSources, EmptyAndShortFilesThatClaimToBeVolumesAreFaults) {
  TemporaryFolder folder;
  touch(folder / "good.nii");
  write_bytes(folder / "empty.nii.gz", "");
  write_bytes(folder / "short.nii", std::string(347, 'x'));
  write_bytes(folder / "empty.mha", "");
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(found.sources.size(), 1u);
  ASSERT_EQ(found.faults.size(), 3u);
  EXPECT_EQ(found.faults[0].path, folder / "empty.mha");
  EXPECT_NE(found.faults[2].message.find("347 bytes"), std::string::npos);
  EXPECT_EQ(io::find_sources(folder / "short.nii").faults.size(), 1u);
}

TEST(FindSources, LinksAreFollowedWithoutLoops) {
  TemporaryFolder folder;
  touch(folder / "real/a.nii");
  fs::create_directory_symlink(folder.path(), folder / "real/up");
  fs::create_directory_symlink(folder / "real", folder / "real/self");
  fs::create_directory_symlink(folder / "real", folder / "other");
  fs::create_symlink("nowhere.nii", folder / "broken.nii");
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"other|a", "real|a"}));
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_EQ(found.faults[0].path, folder / "broken.nii");
}

TEST(FindSources, PipesAreNeverOpened) {
  TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((folder / "pipe.nii").c_str(), 0600), 0);
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(found.faults.size(), 1u);
  EXPECT_EQ(passed_over(found), "passed over 1 file that is not a volume");
  EXPECT_THROW(io::find_sources(folder / "pipe"), Error);
}

TEST(FindSources, UnreadableFoldersAreFaults) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser reads everything";
  TemporaryFolder folder;
  touch(folder / "a.nii");
  touch(folder / "closed/b.nii");
  fs::permissions(folder / "closed", fs::perms::none);
  const Found found = io::find_sources(folder.path());
  fs::permissions(folder / "closed", fs::perms::owner_all);
  EXPECT_EQ(found.sources.size(), 1u);
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_NE(found.faults[0].message.find("Permission denied"), std::string::npos);
}

TEST(FindSources, WhatIsNotThereOrNoVolumeThrows) {
  TemporaryFolder folder;
  expect_error(ErrorCode::input, "no such file", [&] { io::find_sources(folder / "absent"); });
  touch(folder / "notes.txt");
  expect_error(ErrorCode::input, "no known kind", [&] { io::find_sources(folder / "notes.txt"); });
  const Found found = io::find_sources(folder.path());
  EXPECT_TRUE(found.sources.empty());
}

TEST(FindSources, DicomByContentWhateverTheName) {
  TemporaryFolder folder;
  write_dicom_slices(folder / "patient/ct", 3);
  fs::rename(folder / "patient/ct/1.dcm", folder / "patient/ct/IM_0001");
  fs::rename(folder / "patient/ct/2.dcm", folder / "patient/ct/2.txt");
  touch(folder / "patient/scan.nii");
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"patient|ct", "patient|scan"}));
  EXPECT_EQ(found.sources[0].files.size(), 3u);
  EXPECT_EQ(found.sources[0].path, folder / "patient/ct");
}

TEST(FindSources, TheSeriesOfTheRootHasItsFoldersName) {
  TemporaryFolder folder;
  write_dicom_slices(folder / "ct", 2);
  EXPECT_EQ(outputs(io::find_sources((folder / "ct") + "/")), (std::vector<std::string>{"|ct"}));
  EXPECT_EQ(outputs(io::find_sources((folder / "ct") + "/.")), (std::vector<std::string>{"|ct"}));
}

TEST(FindSources, OneDicomFile) {
  TemporaryFolder folder;
  write_dicom_slices(folder / "ct", 2);
  const Found found = io::find_sources(folder / "ct/1.dcm");
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"|1"}));
  EXPECT_EQ(found.sources[0].files, (std::vector<std::string>{folder / "ct/1.dcm"}));
}

TEST(FindSources, ABrokenSeriesDoesNotHideTheRest) {
  TemporaryFolder folder;
  write_dicom_slices(folder / "good", 3);
  write_dicom_slices(folder / "gap", 5);
  fs::remove(folder / "gap/2.dcm");
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(outputs(found), (std::vector<std::string>{"|good"}));
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_EQ(found.faults[0].path, folder / "gap");
}

TEST(FindSources, ObjectsWithoutPixelsArePassedOver) {
  TemporaryFolder folder;
  write_dicom_slices(folder / "ct", 2);
  const std::string uid = "1.2.840.10008.5.1.4.1.1.88.11";
  std::string meta = dicom_element(2, 1, "OB", std::string("\0\1", 2)) + dicom_element(2, 2, "UI", uid) +
                     dicom_element(2, 0x10, "UI", "1.2.840.10008.1.2.1");
  meta = dicom_element(2, 0, "UL", little_endian(meta.size(), 4)) + meta;
  write_bytes(folder / "ct/report", std::string(128, '\0') + "DICM" + meta + dicom_element(8, 0x16, "UI", uid) +
                                        dicom_element(8, 0x60, "CS", "SR"));
  const Found found = io::find_sources(folder.path());
  EXPECT_EQ(found.sources.size(), 1u);
  EXPECT_TRUE(found.faults.empty());
  EXPECT_EQ(passed_over(found), "passed over 1 file that is not a volume");
}

}  // namespace

}  // namespace volpipe::test
