"""PACKAGE DOC penstock.runs"""
