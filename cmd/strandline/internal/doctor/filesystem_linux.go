package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystem is the kind of file system of a folder, in mount(8)'s words where
// it is one of the usual ones, else its number.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	return fileSystemName(int64(s.Type)) //nolint:unconvert // 32 bits on some machines
}

func fileSystemName(magic int64) string {
	switch uint32(magic) {
	case unix.EXT4_SUPER_MAGIC: // ext2 and ext3 have the same
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case 0x2fc12fc1:
		return "zfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "smb"
	case unix.CIFS_SUPER_MAGIC:
		return "cifs"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.AFS_SUPER_MAGIC:
		return "afs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	}
	return fmt.Sprintf("kind 0x%x", uint32(magic))
}

// freeInodes is how many files can still be made. Some file systems make inodes
// as they need them: known is false.
func freeInodes(dir string) (free uint64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Files == 0 {
		return 0, false
	}
	return s.Ffree, true
}
