// etcd in the version that kube-apiserver is made for: Debian's is too old for a watch that begins with a list.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
