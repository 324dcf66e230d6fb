# Installs the build tree BUILD into a folder of its own, builds the project SOURCE against it, and runs both.
set(work ${BUILD}/package_test)
file(REMOVE_RECURSE ${work})
set(installed ${work}/installed)

function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGV}: ${result}\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${installed})
file(RENAME ${installed} ${work}/moved)  # nothing may depend on where it was installed to
set(installed ${work}/moved)

file(GLOB_RECURSE headers RELATIVE ${installed}/include/volpipe ${installed}/include/volpipe/*.h)
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n")
list(JOIN headers "" includes)
file(WRITE ${work}/all_headers.cpp "${includes}")

run(${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/build -G Ninja -DCMAKE_PREFIX_PATH=${installed} -DALL_HEADERS=${work}/all_headers.cpp
    -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/consumer ${work})
run(${installed}/bin/volpipe --version)
