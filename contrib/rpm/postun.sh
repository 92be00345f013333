if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # An upgrade restarts an agent that runs, unless the configuration that is there now would keep it from starting.
    if [ "$1" -eq 0 ]; then
        :
    elif [ ! -e /etc/parda.toml ] || said=$(timeout 30 parda check /etc/parda.toml 2>&1); then
        systemctl try-restart parda.service || :
    elif systemctl is-active --quiet parda.service; then
        echo "parda: the old version runs on until \`systemctl restart parda\`: $said" >&2
    fi
fi
# The tool that makes the package gives it files alone.
if [ "$1" -eq 0 ]; then rmdir /usr/share/parda /usr/share/doc/parda/docs /usr/share/doc/parda /usr/share/licenses/parda 2> /dev/null || :; fi
