"""A fuzzer for workspaces of strangers: whatever lies in the files, the commands that look end in words."""
